/* Lease: a hold on consecutive records of a ring. */
#include "module.h"

#include <stdlib.h>
#include <unistd.h>

struct run {
    uint64_t end;
    bool done;
    struct run *next;
};

static PyTypeObject *lease_type;

Lease *lease_new(Ring *ring) {
    Lease *self = (Lease *)PyType_GenericAlloc(lease_type, 0);
    if (self)
        self->ring = (Ring *)Py_NewRef((PyObject *)ring);
    return self;
}

int lease_begin(Lease *self, uint64_t size, uint64_t end) {
    struct runs *runs = &self->ring->runs;
    self->size = size;
    if (!size)
        return 0;
    struct run *run = PyMem_Malloc(sizeof *run);
    if (!run) {
        PyErr_NoMemory();
        return -1;
    }
    *run = (struct run){.end = end};
    if (runs->newest)
        runs->newest->next = run;
    else
        runs->oldest = run;
    runs->newest = self->run = run;
    return 0;
}

/* Frees the space of the oldest runs that are done, unless the ring is closed or a parent's. */
static void run_done(Lease *self) {
    Ring *ring = self->ring;
    struct runs *runs = &ring->runs;
    uint64_t position = 0;
    self->run->done = true;
    self->run = NULL;
    while (runs->oldest && runs->oldest->done) {
        struct run *freed = runs->oldest;
        position = freed->end;
        runs->oldest = freed->next;
        PyMem_Free(freed);
    }
    if (!runs->oldest)
        runs->newest = NULL;
    if (position && ring->open && ring->pid == getpid())
        ds_ring_free(&ring->reader.ring, &ring->reader.ring.data, position);
}

void lease_settle(Lease *self) {
    if (!self->released)
        return;
    /* A view of a copy does not need the ring. */
    if (self->run && (self->views == 0 || self->copy))
        run_done(self);
    if (self->views == 0) {
        free(self->copy);
        self->copy = NULL;
    }
}

static PyObject *lease_release(Lease *self, PyObject *Py_UNUSED(ignored)) {
    self->released = true;
    lease_settle(self);
    Py_RETURN_NONE;
}

static void lease_dealloc(Lease *self) {
    self->released = true;
    lease_settle(self);
    Py_XDECREF((PyObject *)self->ring);
    free_object((PyObject *)self);
}

static PyMethodDef lease_methods[] = {{"release", (PyCFunction)lease_release, METH_NOARGS, NULL}, {0}};
static PyMemberDef lease_members[] = {{"size", T_ULONGLONG, offsetof(Lease, size), READONLY, NULL}, {0}};
static PyType_Slot lease_slots[] = {{Py_tp_dealloc, (void *)lease_dealloc},
                                    {Py_tp_methods, lease_methods},
                                    {Py_tp_members, lease_members},
                                    {0, NULL}};
static PyType_Spec lease_spec = {"dumpstream._native.Lease", sizeof(Lease), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, lease_slots};

int add_lease(PyObject *module) {
    lease_type = add_type(module, &lease_spec);
    return lease_type ? 0 : -1;
}
