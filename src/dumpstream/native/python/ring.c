/* Ring and SharedRing: the ring that this process's own callback fills, which is read in place,
 * and a ring that another process fills, which is read through private copies. */
#include "module.h"

#include <poll.h>
#include <unistd.h>

#include "dumpstream/callback.h"

static PyTypeObject *ring_type, *shared_ring_type;

/* Life */

/* Returns the new ring, or raises the `error`. */
static PyObject *made(Ring *self, int error) {
    if (error) {
        Py_DECREF(self);
        return raise_errno(error);
    }
    self->pid = getpid();
    self->open = true;
    return (PyObject *)self;
}

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"size", "path", NULL};
    unsigned long long size;
    const char *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|$z", keywords, &size, &path))
        return NULL;
    Ring *self = (Ring *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    int error;
    self->reader.in_place = type == ring_type;
    Py_BEGIN_ALLOW_THREADS;
    error = self->reader.in_place ? ds_ring_create(&self->reader.ring, size, path)
                                  : ds_reader_create(&self->reader, size, path);
    Py_END_ALLOW_THREADS;
    return made(self, error);
}

static PyObject *shared_ring_recover(PyObject *Py_UNUSED(type), PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    Ring *self = (Ring *)PyType_GenericAlloc(shared_ring_type, 0);
    if (!self)
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_reader_resume(&self->reader, path);
    Py_END_ALLOW_THREADS;
    return made(self, error);
}

/* Whether the process that reads a lent ring has not ended. */
static bool reader_runs(struct ds_ring *ring) {
    const Ring *self = (const void *)((const char *)ring - offsetof(Ring, reader.ring));
    struct pollfd process = {.fd = self->reader_fd, .events = POLLIN};
    return poll(&process, 1, 0) <= 0 || !(process.revents & POLLIN);
}

/* Takes over both descriptors that follow `fd`, once the ring is mapped. */
static PyObject *ring_borrow(PyObject *Py_UNUSED(type), PyObject *args) {
    int fd, event_fd, reader_fd, error;
    unsigned long long size;
    if (!PyArg_ParseTuple(args, "iKii", &fd, &size, &event_fd, &reader_fd))
        return NULL;
    Ring *self = (Ring *)PyType_GenericAlloc(ring_type, 0);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_ring_map(&self->reader.ring, fd, size);
    if (!error)
        ds_ring_touch(&self->reader.ring); /* the caller waits for the reader's process in any case */
    Py_END_ALLOW_THREADS;
    if (error)
        return made(self, error);
    self->reader.in_place = self->lent = true;
    self->reader_fd = reader_fd;
    self->reader.ring.reader_alive = reader_runs;
    ds_ring_wake_by(&self->reader.ring, event_fd);
    return made(self, 0);
}

static void ring_unmap(Ring *self) {
    struct ds_ring *ring = &self->reader.ring;
    if (!self->open)
        return;
    self->open = false;
    if (self->pid != getpid())
        ring->control = NULL; /* not mapped in this child, which may use the address for something else */
    else if (self->attached && ds_detach(ring, 0) != 0)
        self->stuck = true;
    if (self->stuck)
        return;
    ds_ring_destroy(ring);
    if (self->lent)
        close(self->reader_fd);
}

static void ring_dealloc(Ring *self) {
    ring_unmap(self);
    if (!self->stuck) /* otherwise a call still uses the memory */
        free_object((PyObject *)self);
}

/* Sets an error and returns false if the ring cannot be used now and here. */
static bool usable(const Ring *self) {
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

static PyObject *ring_close(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!self->oldest)
        ring_unmap(self); /* otherwise the ring is unmapped after the last lease */
    Py_RETURN_NONE;
}

/* Chunks are copies: they outlive the ring. */
static PyObject *shared_ring_close(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (self->open && !usable(self))
        return NULL;
    ring_unmap(self);
    Py_RETURN_NONE;
}

/* Reading */

static PyObject *ring_lease(Ring *self, PyObject *args) {
    Py_ssize_t most;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(args, "nK", &most, &bytes) || !usable(self))
        return NULL;
    return lease_take(self, most > 0 ? most : 0, bytes);
}

static PyObject *ring_arm(Ring *self, PyObject *args) {
    unsigned long long distance;
    if (!PyArg_ParseTuple(args, "K", &distance) || !usable(self))
        return NULL;
    return PyBool_FromLong(ds_ring_arm(&self->reader.ring, distance));
}

/* A method that only calls a function. */
#define CALLING(name, call)                                                                                  \
    static PyObject *name(Ring *self, PyObject *Py_UNUSED(ignored)) {                                        \
        if (!usable(self))                                                                                   \
            return NULL;                                                                                     \
        call;                                                                                                \
        Py_RETURN_NONE;                                                                                      \
    }
CALLING(ring_disarm, ds_ring_disarm(&self->reader.ring))
CALLING(ring_discard, ds_ring_set_state(&self->reader.ring, DS_STATE_DISCARD))
CALLING(ring_note_refused, ds_note_refused(&self->reader.ring))
CALLING(shared_ring_producer_died, ds_reader_end(&self->reader))

static PyObject *ring_fileno(Ring *self, PyObject *Py_UNUSED(ignored)) {
    const struct ds_ring *ring = &self->reader.ring;
    return usable(self) ? PyLong_FromLong(self->reader.in_place ? ring->event_fd : ring->memory_fd) : NULL;
}

/* What `statistics` of a ring with a data lane of `size` returns. */
static PyObject *counters_tuple(uint64_t size, const struct ds_counters *counters) {
    PyObject *losses = PyDict_New();
    for (int i = 0; losses && i < DS_CAUSE_COUNT; i++) {
        if (!counters->lost_chunks[i])
            continue;
        PyObject *loss = Py_BuildValue("(KK)", (unsigned long long)counters->lost_chunks[i],
                                       (unsigned long long)counters->lost_bytes[i]);
        if (!loss || PyDict_SetItemString(losses, CAUSE_NAMES[i], loss) != 0)
            Py_CLEAR(losses);
        Py_XDECREF(loss);
    }
    if (!losses)
        return NULL;
    return Py_BuildValue("(KKKKKN)", (unsigned long long)size, (unsigned long long)counters->fill,
                         (unsigned long long)counters->callbacks, (unsigned long long)counters->wakeups,
                         (unsigned long long)counters->unnamed, losses);
}

static PyObject *ring_statistics(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!usable(self))
        return NULL;
    struct ds_counters counters;
    if (self->lent)
        ds_ring_count(&self->reader.ring, &counters);
    else
        ds_reader_count(&self->reader, &counters);
    return counters_tuple(self->reader.ring.data.size, &counters);
}

/* The callback */

static PyObject *ring_attach(Ring *self, PyObject *args) {
    int block;
    unsigned long long limit_ns, max_file_bytes;
    if (!PyArg_ParseTuple(args, "pKK", &block, &limit_ns, &max_file_bytes) || !usable(self))
        return NULL;
    struct ds_policy policy = {
        .block = block != 0, .block_limit_ns = limit_ns, .max_file_bytes = max_file_bytes};
    int error = ds_attach(&self->reader.ring, &policy);
    if (error)
        return raise_errno(error);
    self->attached = true;
    Py_RETURN_NONE;
}

static PyObject *ring_detach(Ring *self, PyObject *args) {
    unsigned long long limit_ns;
    if (!PyArg_ParseTuple(args, "K", &limit_ns) || !usable(self))
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_detach(&self->reader.ring, limit_ns);
    Py_END_ALLOW_THREADS;
    self->stuck = error != 0;
    self->attached = false;
    return PyBool_FromLong(!self->stuck);
}

/* After `detach`: the names of the files that are still refused, and their bytes. */
static PyObject *ring_refused(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!usable(self))
        return NULL;
    PyObject *files = PyList_New(0);
    for (uint32_t i = 0; files && i < DS_REFUSED_MAX; i++) {
        const char *name;
        uint32_t length;
        uint64_t bytes;
        if (!ds_refused_file(i, &name, &length, &bytes))
            continue;
        PyObject *file = Py_BuildValue("(NK)", decode_name(name, length), (unsigned long long)bytes);
        if (append_new(files, file) != 0)
            Py_CLEAR(files);
    }
    return files;
}

/* The types */

/* The methods that both have. */
#define BOTH                                                                                                 \
    {"lease", (PyCFunction)ring_lease, METH_VARARGS, NULL},                                                  \
        {"arm", (PyCFunction)ring_arm, METH_VARARGS, NULL},                                                  \
        {"disarm", (PyCFunction)ring_disarm, METH_NOARGS, NULL},                                             \
        {"discard", (PyCFunction)ring_discard, METH_NOARGS, NULL},                                           \
        {"fileno", (PyCFunction)ring_fileno, METH_NOARGS, NULL}, {                                           \
        "statistics", (PyCFunction)ring_statistics, METH_NOARGS, NULL                                        \
    }

static PyMethodDef ring_methods[] = {BOTH,
                                     {"attach", (PyCFunction)ring_attach, METH_VARARGS, NULL},
                                     {"detach", (PyCFunction)ring_detach, METH_VARARGS, NULL},
                                     {"refused", (PyCFunction)ring_refused, METH_NOARGS, NULL},
                                     {"borrow", (PyCFunction)ring_borrow, METH_VARARGS | METH_STATIC, NULL},
                                     {"note_refused", (PyCFunction)ring_note_refused, METH_NOARGS, NULL},
                                     {"close", (PyCFunction)ring_close, METH_NOARGS, NULL},
                                     {0}};
static PyMethodDef shared_ring_methods[] = {
    BOTH,
    {"recover", (PyCFunction)shared_ring_recover, METH_VARARGS | METH_STATIC, NULL},
    {"producer_died", (PyCFunction)shared_ring_producer_died, METH_NOARGS, NULL},
    {"close", (PyCFunction)shared_ring_close, METH_NOARGS, NULL},
    {0}};

static PyType_Slot ring_slots[] = {{Py_tp_new, (void *)ring_new},
                                   {Py_tp_dealloc, (void *)ring_dealloc},
                                   {Py_tp_methods, ring_methods},
                                   {0, NULL}};
static PyType_Slot shared_ring_slots[] = {{Py_tp_new, (void *)ring_new},
                                          {Py_tp_dealloc, (void *)ring_dealloc},
                                          {Py_tp_methods, shared_ring_methods},
                                          {0, NULL}};
static PyType_Spec ring_spec = {"dumpstream._native.Ring", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT, ring_slots};
static PyType_Spec shared_ring_spec = {"dumpstream._native.SharedRing", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT,
                                       shared_ring_slots};

int add_rings(PyObject *module) {
    ring_type = add_type(module, &ring_spec);
    shared_ring_type = ring_type ? add_type(module, &shared_ring_spec) : NULL;
    return shared_ring_type ? 0 : -1;
}
