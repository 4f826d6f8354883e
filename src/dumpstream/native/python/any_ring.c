/* AnyRing: what Ring and SharedRing have in common. */
#include "module.h"

#include <unistd.h>

/* Life */

PyObject *any_ring_made(AnyRing *self, const struct ring_kind *kind, int error) {
    if (error) {
        Py_DECREF(self);
        return raise_errno(error);
    }
    self->kind = kind;
    self->pid = getpid();
    self->open = true;
    return (PyObject *)self;
}

PyObject *any_ring_new(PyTypeObject *type, const struct ring_kind *kind, PyObject *args, PyObject *kwargs) {
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
    error = kind->create(self, size, path);
    Py_END_ALLOW_THREADS;
    return any_ring_made(self, kind, error);
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

/* Methods */

PyObject *any_ring_lease(AnyRing *self, PyObject *args) {
    Py_ssize_t most;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(args, "nK", &most, &bytes) || !any_ring_usable(self))
        return NULL;
    Lease *lease = lease_new((PyObject *)self, &self->runs, self->kind->free_space);
    PyObject *chunks = PyList_New(0);
    PyObject *losses = PyList_New(0);
    PyObject *result = NULL;
    most = most > 0 ? most : 0;
    if (lease && chunks && losses && self->kind->fill_lease(self, lease, chunks, losses, most, bytes) == 0)
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
    return PyBool_FromLong(self->kind->arm(self, distance));
}

PyObject *any_ring_disarm(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    self->kind->disarm(self);
    Py_RETURN_NONE;
}

PyObject *any_ring_discard(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    self->kind->set_state(self, DS_STATE_DISCARD);
    Py_RETURN_NONE;
}

PyObject *any_ring_statistics(AnyRing *self, PyObject *Py_UNUSED(ignored)) {
    if (!any_ring_usable(self))
        return NULL;
    struct ds_counters counters;
    uint64_t size = self->kind->count(self, &counters);
    return counters_tuple(size, &counters);
}
