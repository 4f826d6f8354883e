/* AnyRing: what Ring and SharedRing have in common. */
#include "module.h"

#include <unistd.h>

/* Life */

PyObject *any_ring_made(AnyRing *self, int error) {
    if (error) {
        Py_DECREF(self);
        return raise_errno(error);
    }
    self->pid = getpid();
    self->open = true;
    return (PyObject *)self;
}

PyObject *any_ring_new(PyTypeObject *type, create_fn create, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"size", "path", NULL};
    unsigned long long size;
    const char *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|$z", keywords, &size, &path))
        return NULL;
    AnyRing *self = (AnyRing *)make_object(type);
    if (!self)
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = create(self, size, path);
    Py_END_ALLOW_THREADS;
    return any_ring_made(self, error);
}

bool any_ring_usable(const AnyRing *self) {
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

void any_ring_free(AnyRing *self, uint64_t position) {
    if (self->open && self->pid == getpid())
        ds_ring_free(self->ring, &self->ring->data, position);
}

/* Methods */

PyObject *any_ring_lease(AnyRing *self, PyObject *args) {
    Py_ssize_t most;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(args, "nK", &most, &bytes) || !any_ring_usable(self))
        return NULL;
    int (*fill)(AnyRing *, Lease *, PyObject *, PyObject *, Py_ssize_t, uint64_t) =
        self->reader ? shared_ring_fill_lease : ring_fill_lease;
    Lease *lease = lease_new(self);
    PyObject *chunks = PyList_New(0);
    PyObject *losses = PyList_New(0);
    PyObject *result = NULL;
    if (lease && chunks && losses && fill(self, lease, chunks, losses, most > 0 ? most : 0, bytes) == 0)
        result = lease_result(lease, chunks, losses);
    Py_XDECREF(chunks);
    Py_XDECREF(losses);
    Py_XDECREF((PyObject *)lease);
    return result;
}

PyObject *any_ring_arm(AnyRing *self, PyObject *args) {
    unsigned long long distance;
    if (!PyArg_ParseTuple(args, "K", &distance) || !any_ring_usable(self))
        return NULL;
    return PyBool_FromLong(ds_ring_arm(self->ring, distance));
}

PyObject *any_ring_disarm(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    ds_ring_disarm(self->ring);
    Py_RETURN_NONE;
}

PyObject *any_ring_discard(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    ds_ring_set_state(self->ring, DS_STATE_DISCARD);
    Py_RETURN_NONE;
}

PyObject *any_ring_fileno(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    return PyLong_FromLong(self->reader ? self->ring->memory_fd : self->ring->event_fd);
}

PyObject *any_ring_statistics(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    struct ds_counters counters;
    if (self->reader)
        ds_reader_count(self->reader, &counters);
    else
        ds_ring_count(self->ring, &counters);
    return counters_tuple(self->ring->data.size, &counters);
}
