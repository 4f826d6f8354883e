/* SharedRing: a ring that another process fills, read by private copies. */
#include "module.h"

#include <unistd.h>

#include "dumpstream/reader.h"

typedef struct {
    PyObject_HEAD struct ds_reader reader;
    struct runs runs;
    pid_t pid;
    bool open;
    bool busy; /* another thread is inside `lease`, without the GIL */
} SharedRing;

static PyTypeObject *shared_ring_type;

/* Life */

static PyObject *shared_ring_made(SharedRing *self, int error) {
    if (error) {
        Py_DECREF(self);
        return raise_errno(error);
    }
    self->pid = getpid();
    self->open = true;
    return (PyObject *)self;
}

static PyObject *shared_ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"size", "path", NULL};
    unsigned long long size;
    const char *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|$z", keywords, &size, &path))
        return NULL;
    SharedRing *self = (SharedRing *)make_object(type);
    if (!self)
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_reader_create(&self->reader, size, path);
    Py_END_ALLOW_THREADS;
    return shared_ring_made(self, error);
}

static PyObject *shared_ring_recover(PyObject *Py_UNUSED(type), PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    SharedRing *self = (SharedRing *)make_object(shared_ring_type);
    if (!self)
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_reader_resume(&self->reader, path);
    Py_END_ALLOW_THREADS;
    return shared_ring_made(self, error);
}

/* Sets an error and returns false if the ring cannot be used now and here. */
static bool shared_ring_usable(SharedRing *self) {
    if (!self->open)
        PyErr_SetString(PyExc_ValueError, "the ring is closed");
    else if (self->pid != getpid())
        PyErr_SetString(PyExc_ValueError,
                        "the ring belongs to the parent process; a forked child must open its own");
    else if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread reads this ring; use one at a time");
    else
        return true;
    return false;
}

static void shared_ring_unmap(SharedRing *self) {
    if (!self->open)
        return;
    self->open = false;
    if (self->pid == getpid())
        ds_reader_destroy(&self->reader);
    else
        close(self->reader.ring.memory_fd); /* not mapped here */
}

static void shared_ring_dealloc(SharedRing *self) {
    shared_ring_unmap(self);
    free_object((PyObject *)self);
}

/* Chunks are copies: they outlive the ring. */
static PyObject *shared_ring_close(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    if (self->open && !shared_ring_usable(self))
        return NULL;
    shared_ring_unmap(self);
    Py_RETURN_NONE;
}

static PyObject *shared_ring_fileno(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    return shared_ring_usable(self) ? PyLong_FromLong(self->reader.ring.memory_fd) : NULL;
}

/* Reading */

static void shared_ring_free_space(PyObject *ring, uint64_t position) {
    SharedRing *self = (SharedRing *)ring;
    if (self->open && self->pid == getpid())
        ds_reader_free(&self->reader, position);
}

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

static int take(SharedRing *self, Py_ssize_t most, uint64_t bytes, struct ds_batch *batch) {
    int error;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_reader_take(&self->reader, (uint64_t)most, bytes, batch);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    if (!error)
        return 0;
    raise_errno(error);
    return -1;
}

static PyObject *shared_ring_lease(SharedRing *self, PyObject *args) {
    Py_ssize_t most;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(args, "nK", &most, &bytes) || !shared_ring_usable(self))
        return NULL;
    Lease *lease = lease_new((PyObject *)self, &self->runs, shared_ring_free_space);
    PyObject *chunks = PyList_New(0);
    PyObject *losses = PyList_New(0);
    PyObject *result = NULL;
    struct ds_batch batch = {0};
    if (lease && chunks && losses && take(self, most > 0 ? most : 0, bytes, &batch) == 0) {
        lease->copy = batch.chunks.bytes;
        if (lease_begin(lease, batch.size, batch.end) == 0 && append_losses(losses, &batch) == 0 &&
            append_chunks(chunks, lease, &batch) == 0)
            result = lease_result(lease, chunks, losses);
        batch.chunks.bytes = NULL; /* the lease's */
    }
    ds_batch_free(&batch);
    Py_XDECREF(chunks);
    Py_XDECREF(losses);
    Py_XDECREF((PyObject *)lease);
    return result;
}

static PyObject *shared_ring_arm(SharedRing *self, PyObject *args) {
    unsigned long long distance;
    if (!PyArg_ParseTuple(args, "K", &distance) || !shared_ring_usable(self))
        return NULL;
    return PyBool_FromLong(ds_reader_arm(&self->reader, distance));
}

static PyObject *shared_ring_disarm(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!shared_ring_usable(self))
        return NULL;
    ds_reader_disarm(&self->reader);
    Py_RETURN_NONE;
}

static PyObject *shared_ring_discard(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!shared_ring_usable(self))
        return NULL;
    ds_reader_set_state(&self->reader, DS_STATE_DISCARD);
    Py_RETURN_NONE;
}

static PyObject *shared_ring_producer_died(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!shared_ring_usable(self))
        return NULL;
    ds_reader_end(&self->reader);
    Py_RETURN_NONE;
}

static PyObject *shared_ring_statistics(SharedRing *self, PyObject *Py_UNUSED(ignored)) {
    struct ds_counters counters;
    if (!shared_ring_usable(self))
        return NULL;
    ds_reader_count(&self->reader, &counters);
    return counters_tuple(self->reader.ring.data.size, &counters);
}

static PyMethodDef shared_ring_methods[] = {
    {"recover", (PyCFunction)shared_ring_recover, METH_VARARGS | METH_STATIC, NULL},
    {"fileno", (PyCFunction)shared_ring_fileno, METH_NOARGS, NULL},
    {"lease", (PyCFunction)shared_ring_lease, METH_VARARGS, NULL},
    {"arm", (PyCFunction)shared_ring_arm, METH_VARARGS, NULL},
    {"disarm", (PyCFunction)shared_ring_disarm, METH_NOARGS, NULL},
    {"discard", (PyCFunction)shared_ring_discard, METH_NOARGS, NULL},
    {"producer_died", (PyCFunction)shared_ring_producer_died, METH_NOARGS, NULL},
    {"statistics", (PyCFunction)shared_ring_statistics, METH_NOARGS, NULL},
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
