/* SharedRing: a ring that another process fills. It is read through private copies. */
#include "module.h"

#include <unistd.h>

#include "dumpstream/reader.h"

typedef struct {
    AnyRing any;
    struct ds_reader reader;
} SharedRing;

static PyTypeObject *shared_ring_type;

/* Life */

/* Fills in where the ring is, and returns its reader. */
static struct ds_reader *reader_of(AnyRing *any) {
    any->reader = &((SharedRing *)any)->reader;
    any->ring = &any->reader->ring;
    return any->reader;
}

static int shared_ring_create(AnyRing *any, uint64_t size, const char *path) {
    return ds_reader_create(reader_of(any), size, path);
}

static void shared_ring_unmap(SharedRing *self) {
    if (!self->any.open)
        return;
    self->any.open = false;
    if (self->any.pid == getpid())
        ds_ring_destroy(&self->reader.ring);
    else
        close(self->reader.ring.memory_fd); /* not mapped here */
}

static void shared_ring_dealloc(SharedRing *self) {
    shared_ring_unmap(self);
    free_object((PyObject *)self);
}

/* Chunks are copies: they outlive the ring. */
static PyObject *shared_ring_close(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    if (self->any.open && !any_ring_usable(&self->any))
        return NULL;
    shared_ring_unmap(self);
    Py_RETURN_NONE;
}

/* Reading */

static int append_losses(PyObject *losses, const struct ds_batch *batch) {
    struct ds_view note;
    uint64_t position = batch->losses.start;
    while (ds_copy_next(&batch->losses, &position, &note) == 1) {
        if (append_note(losses, &note) != 0)
            return -1;
    }
    if (!batch->hole_bytes)
        return 0;
    return append_loss(losses, PyUnicode_FromString(""), DS_CAUSE_UNFINISHED, batch->hole_bytes, false);
}

static int append_chunks(PyObject *chunks, Lease *lease, const struct ds_batch *batch) {
    struct ds_view view;
    struct chunk_name name = {0};
    uint64_t position = batch->chunks.start;
    int error = 0;
    while (!error && ds_copy_next(&batch->chunks, &position, &view) == 1)
        error = append_chunk(chunks, lease, &view, &name);
    Py_XDECREF(name.text);
    return error;
}

static int take(AnyRing *self, Py_ssize_t most, uint64_t bytes, struct ds_batch *batch) {
    int error;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_reader_take(self->reader, (uint64_t)most, bytes, batch);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    if (!error)
        return 0;
    raise_errno(error);
    return -1;
}

int shared_ring_fill_lease(AnyRing *self, Lease *lease, PyObject *chunks, PyObject *losses, Py_ssize_t most,
                           uint64_t bytes) {
    struct ds_batch batch = {0};
    int error = take(self, most, bytes, &batch);
    if (!error) {
        lease->copy = batch.chunks.bytes;
        if (lease_begin(lease, batch.size, batch.end) != 0 || append_losses(losses, &batch) != 0 ||
            append_chunks(chunks, lease, &batch) != 0)
            error = -1;
        batch.chunks.bytes = NULL; /* the lease owns it now */
    }
    ds_batch_free(&batch);
    return error;
}

static PyObject *shared_ring_producer_died(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(&self->any))
        return NULL;
    ds_reader_end(&self->reader);
    Py_RETURN_NONE;
}

static PyObject *shared_ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    return any_ring_new(type, shared_ring_create, args, kwargs);
}

static PyObject *shared_ring_recover(PyObject *Py_UNUSED(type), PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    AnyRing *self = (AnyRing *)make_object(shared_ring_type);
    if (!self)
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_reader_resume(reader_of(self), path);
    Py_END_ALLOW_THREADS;
    return any_ring_made(self, error);
}

static PyMethodDef shared_ring_methods[] = {
    ANY_RING_METHODS,
    {"recover", (PyCFunction)shared_ring_recover, METH_VARARGS | METH_STATIC, NULL},
    {"producer_died", (PyCFunction)shared_ring_producer_died, METH_NOARGS, NULL},
    {"close", (PyCFunction)shared_ring_close, METH_NOARGS, NULL},
    {0}};
static PyType_Slot shared_ring_slots[] = {{Py_tp_new, (void *)shared_ring_new},
                                          {Py_tp_dealloc, (void *)shared_ring_dealloc},
                                          {Py_tp_methods, shared_ring_methods},
                                          {0, NULL}};
static PyType_Spec shared_ring_spec = {"dumpstream._native.SharedRing", sizeof(SharedRing), 0,
                                       Py_TPFLAGS_DEFAULT, shared_ring_slots};

int add_shared_ring(PyObject *module) {
    return add_type(module, &shared_ring_spec, "SharedRing", &shared_ring_type);
}
