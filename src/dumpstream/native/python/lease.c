/* Lease: a hold on consecutive records of a ring, and how they are taken. */
#include "module.h"

#include <stdlib.h>
#include <unistd.h>

struct run {
    uint64_t end;
    bool done;
    struct run *next;
};

static PyTypeObject *lease_type;

/* Puts the `size` bytes of ring space that end at `end` under the lease. */
static int lease_begin(Lease *self, uint64_t size, uint64_t end) {
    Ring *ring = self->ring;
    self->size = size;
    if (!size)
        return 0;
    struct run *run = PyMem_Malloc(sizeof *run);
    if (!run) {
        PyErr_NoMemory();
        return -1;
    }
    *run = (struct run){.end = end};
    if (ring->newest)
        ring->newest->next = run;
    else
        ring->oldest = run;
    ring->newest = self->run = run;
    return 0;
}

/* Frees the space of the oldest runs that are done, unless the ring is closed or a parent's. */
static void run_done(Lease *self) {
    Ring *ring = self->ring;
    uint64_t position = 0;
    self->run->done = true;
    self->run = NULL;
    while (ring->oldest && ring->oldest->done) {
        struct run *freed = ring->oldest;
        position = freed->end;
        ring->oldest = freed->next;
        PyMem_Free(freed);
    }
    if (!ring->oldest)
        ring->newest = NULL;
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

/* Taking */

static int append_loss(PyObject *losses, PyObject *name, enum ds_cause cause, uint64_t bytes, bool ended) {
    return append_new(losses, Py_BuildValue("(NsKN)", name, CAUSE_NAMES[cause], (unsigned long long)bytes,
                                            PyBool_FromLong(ended)));
}

/* Releases the GIL while it copies. In place there is nothing to copy. */
static int take(Ring *self, Py_ssize_t most, uint64_t bytes, struct ds_batch *batch) {
    self->busy = true;
    PyThreadState *thread = self->reader.in_place ? NULL : PyEval_SaveThread();
    int error = ds_reader_take(&self->reader, (uint64_t)most, bytes, batch);
    if (thread)
        PyEval_RestoreThread(thread);
    self->busy = false;
    return error;
}

static int append_losses(PyObject *losses, const struct ds_batch *batch) {
    struct ds_message note;
    uint64_t position = batch->losses.start;
    while (ds_records_next(&batch->losses, &position, &note) == 1) {
        bool known = note.flag >= 0 && note.flag < DS_CAUSE_COUNT;
        enum ds_cause cause = known ? (enum ds_cause)note.flag : DS_CAUSE_AFTER_LOSS;
        PyObject *name = decode_name(note.name, note.name_length);
        if (append_loss(losses, name, cause, (uint64_t)note.offset, note.flags & DS_RECORD_LAST) != 0)
            return -1;
    }
    if (!batch->hole_bytes)
        return 0;
    return append_loss(losses, PyUnicode_FromString(""), DS_CAUSE_UNFINISHED, batch->hole_bytes, false);
}

/* Takes losses and at most `most` chunks, and puts the chunks under the lease. The losses are
 * older than the chunks. */
static int fill_lease(Ring *self, Lease *lease, PyObject *chunks, PyObject *losses, Py_ssize_t most,
                      uint64_t bytes) {
    struct ds_batch batch = {0};
    uint64_t *read = &self->reader.ring.data.read;
    int error = take(self, most, bytes, &batch);
    uint64_t end = batch.chunks.start;
    lease->copy = batch.chunks.copy;
    lease->step = batch.step;
    if (error)
        raise_errno(error);
    else if (append_losses(losses, &batch) != 0 ||
             append_chunks(chunks, lease, most, &batch.chunks, &end) != 0 ||
             lease_begin(lease, batch.size + (end - *read), end) != 0)
        error = -1;
    else
        *read = end;
    batch.chunks.copy = NULL; /* the lease owns it now */
    ds_batch_free(&batch);
    return error;
}

static PyObject *step_of(const Lease *lease) {
    return lease->step == DS_NO_STEP ? Py_NewRef(Py_None) : PyLong_FromLongLong(lease->step);
}

PyObject *lease_take(Ring *ring, Py_ssize_t most, uint64_t bytes) {
    Lease *lease = (Lease *)PyType_GenericAlloc(lease_type, 0);
    if (lease)
        lease->ring = (Ring *)Py_NewRef((PyObject *)ring);
    PyObject *chunks = PyList_New(0), *losses = PyList_New(0), *result = NULL;
    if (lease && chunks && losses && fill_lease(ring, lease, chunks, losses, most, bytes) == 0)
        result = lease->size || PyList_Size(losses)
                     ? Py_BuildValue("(OOON)", chunks, losses, (PyObject *)lease, step_of(lease))
                     : Py_NewRef(Py_None);
    Py_XDECREF(chunks);
    Py_XDECREF(losses);
    Py_XDECREF((PyObject *)lease);
    return result;
}

/* The type */

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
