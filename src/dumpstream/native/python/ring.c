/* Ring: the ring that this process's own callback fills, read in place. */
#include "module.h"

#include <unistd.h>

#include "dumpstream/callback.h"

#define MAX_LEASE_RECORDS 8192

typedef struct {
    AnyRing any;
    struct ds_ring ring;
    struct ds_policy policy;
    bool attached;
    bool stuck; /* a call never left the ring, which therefore stays mapped */
    uint64_t ends[MAX_LEASE_RECORDS];
} Ring;

static PyTypeObject *ring_type;

/* Life */

static int ring_create(AnyRing *any, uint64_t size, const char *path) {
    any->ring = &((Ring *)any)->ring;
    return ds_ring_create(any->ring, size, path);
}

static void ring_unmap(Ring *self) {
    if (!self->any.open)
        return;
    self->any.open = false;
    if (self->any.pid != getpid()) {
        /* The ring is not mapped in this child, which may use the address for something else. */
        close(self->ring.event_fd);
        close(self->ring.memory_fd);
        return;
    }
    if (self->attached && ds_detach(&self->ring, 0) != 0)
        self->stuck = true;
    if (!self->stuck)
        ds_ring_destroy(&self->ring);
}

static void ring_dealloc(Ring *self) {
    ring_unmap(self);
    if (!self->stuck) /* otherwise a call still uses the memory */
        free_object((PyObject *)self);
}

static PyObject *ring_close(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!self->any.runs.oldest)
        ring_unmap(self); /* otherwise the ring is unmapped after the last lease */
    Py_RETURN_NONE;
}

static PyObject *ring_attach(Ring *self, PyObject *args) {
    int block;
    unsigned long long limit_ns, max_file_bytes;
    if (!PyArg_ParseTuple(args, "pKK", &block, &limit_ns, &max_file_bytes) || !any_ring_usable(&self->any))
        return NULL;
    self->policy =
        (struct ds_policy){.block = block != 0, .block_limit_ns = limit_ns, .max_file_bytes = max_file_bytes};
    int error = ds_attach(&self->ring, &self->policy);
    if (error)
        return raise_errno(error);
    self->attached = true;
    Py_RETURN_NONE;
}

static PyObject *ring_detach(Ring *self, PyObject *args) {
    unsigned long long limit_ns;
    if (!PyArg_ParseTuple(args, "K", &limit_ns) || !any_ring_usable(&self->any))
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_detach(&self->ring, limit_ns);
    Py_END_ALLOW_THREADS;
    self->stuck = error != 0;
    self->attached = false;
    return PyBool_FromLong(!self->stuck);
}

/* Reading */

/* Moves the notes that belong before the next chunk into `losses`. Sets `until` to the
 * position up to which chunks may be read before the next note. */
static int take_notes(Ring *self, PyObject *losses, uint64_t *until) {
    struct ds_lane *notes = &self->ring.notes;
    struct ds_view view;
    uint64_t position = notes->read;
    int found;
    *until = UINT64_MAX;
    while ((found = ds_ring_peek(&self->ring, notes, &position, &view)) == 1) {
        if (!ds_note_is_due(&view, self->ring.data.read, until))
            return 0;
        if (append_note(losses, &view) != 0)
            return -1;
        notes->read = position;
        ds_ring_free(&self->ring, notes, position);
        if (view.flags & DS_RECORD_ABANDON)
            ds_ring_return_abandon(&self->ring);
    }
    return found < 0 ? found : 0;
}

/* Appends the chunks between `*position` and `until`, within the limits. */
static int take_chunks(Ring *self, Lease *lease, PyObject *chunks, Py_ssize_t most, uint64_t bytes,
                       uint64_t until, uint64_t *position) {
    struct ds_view view;
    struct chunk_name name = {0};
    uint64_t start = *position;
    Py_ssize_t count = 0;
    int found = 0;
    while (count < most && *position < until && *position - start < bytes) {
        uint64_t next = *position;
        if ((found = ds_ring_peek(&self->ring, &self->ring.data, &next, &view)) != 1)
            break;
        if ((found = append_chunk(chunks, lease, &view, &name)) != 0)
            break;
        *position = self->ends[count++] = next;
    }
    Py_XDECREF(name.text);
    return found < 0 ? found : 0;
}

/* A note that came while the chunks were read belongs between them. */
static int cut_at_note(Ring *self, PyObject *chunks, uint64_t *position) {
    struct ds_view view;
    uint64_t note = self->ring.notes.read;
    int found = ds_ring_peek(&self->ring, &self->ring.notes, &note, &view);
    if (found != 1 || !ds_note_cuts(&view, *position))
        return found < 0 ? found : 0;
    Py_ssize_t count = PyList_Size(chunks);
    Py_ssize_t keep = count;
    while (keep > 0 && ds_note_cuts(&view, self->ends[keep - 1]))
        keep--;
    *position = keep ? self->ends[keep - 1] : self->ring.data.read;
    return PyList_SetSlice(chunks, keep, count, NULL);
}

static int lease_run(Ring *self, Lease *lease, uint64_t position) {
    if (lease_begin(lease, position - self->ring.data.read, position) != 0)
        return -1;
    self->ring.data.read = position;
    return 0;
}

/* Losses are older than the chunks that come with them. */
int ring_fill_lease(AnyRing *any, Lease *lease, PyObject *chunks, PyObject *losses, Py_ssize_t most,
                    uint64_t bytes) {
    Ring *self = (Ring *)any;
    uint64_t until;
    uint64_t position = self->ring.data.read;
    most = most < MAX_LEASE_RECORDS ? most : MAX_LEASE_RECORDS;
    int error = take_notes(self, losses, &until);
    if (!error)
        error = take_chunks(self, lease, chunks, most, bytes, until, &position);
    if (!error)
        error = cut_at_note(self, chunks, &position);
    if (!error)
        error = lease_run(self, lease, position);
    if (error && !PyErr_Occurred())
        raise_errno(error);
    return error;
}

/* After `detach`: the names of the files that are still refused, and their bytes. */
static PyObject *ring_refused(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(&self->any))
        return NULL;
    PyObject *names = PyList_New(0);
    for (uint32_t i = 0; names && i < DS_REFUSED_MAX; i++) {
        const char *name;
        uint32_t length;
        uint64_t bytes;
        if (!ds_refused_file(i, &name, &length, &bytes))
            continue;
        if (append_new(names, Py_BuildValue("(NK)", decode_name(name, length), (unsigned long long)bytes)) !=
            0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    return any_ring_new(type, ring_create, args, kwargs);
}

static PyMethodDef ring_methods[] = {ANY_RING_METHODS,
                                     {"attach", (PyCFunction)ring_attach, METH_VARARGS, NULL},
                                     {"detach", (PyCFunction)ring_detach, METH_VARARGS, NULL},
                                     {"refused", (PyCFunction)ring_refused, METH_NOARGS, NULL},
                                     {"close", (PyCFunction)ring_close, METH_NOARGS, NULL},
                                     {0}};
static PyType_Slot ring_slots[] = {{Py_tp_new, (void *)ring_new},
                                   {Py_tp_dealloc, (void *)ring_dealloc},
                                   {Py_tp_methods, ring_methods},
                                   {0, NULL}};
static PyType_Spec ring_spec = {"dumpstream._native.Ring", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT, ring_slots};

int add_ring(PyObject *module) {
    return add_type(module, &ring_spec, "Ring", &ring_type);
}
