/* The Python face of the native core: Ring, Lease, Chunk, Statistics and a few functions.
 * The only file that knows Python; no policy lives here. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dumpstream/callback.h"
#include "dumpstream/header.h"
#include "dumpstream/statistics.h"

#define MAX_LEASE_RECORDS 8192

static const char *const CAUSE_NAMES[DS_CAUSE_COUNT] = {
    [DS_CAUSE_NULL_CHUNK] = "null_chunk", [DS_CAUSE_BAD_LENGTH] = "bad_length",
    [DS_CAUSE_BAD_NAME] = "bad_name",     [DS_CAUSE_BAD_OFFSET] = "bad_offset",
    [DS_CAUSE_TOO_LARGE] = "too_large",   [DS_CAUSE_FULL] = "ring_full",
    [DS_CAUSE_TIMEOUT] = "timeout",       [DS_CAUSE_AFTER_LOSS] = "after_loss",
    [DS_CAUSE_DISCARDED] = "discarded",
};

/* A run of the data lane that is under lease. Space is freed in order of
 * position, whatever the order of the releases. */
struct run {
    uint64_t end;
    bool done;
    struct run *next;
};

typedef struct {
    PyObject_HEAD struct ds_ring ring;
    struct ds_policy policy;
    struct run *oldest;
    struct run *newest;
    pid_t pid;
    bool open;
    bool attached;
    bool stuck; /* a call never left: stays mapped for good */
    uint64_t ends[MAX_LEASE_RECORDS];
} Ring;

typedef struct {
    PyObject_HEAD Ring *ring;
    struct run *run;
    unsigned long long size;
    Py_ssize_t views;
    bool released;
} Lease;

typedef struct {
    PyObject_HEAD PyObject *name;
    PyObject *owner; /* the Lease, or the bytes of a chunk made in Python */
    const uint8_t *data;
    Py_ssize_t length;
    long long offset;
    unsigned long long sequence;
    int flag;
    char is_last;
    char more;
    char leased;
} Chunk;

static PyTypeObject *ring_type, *lease_type, *chunk_type;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *make_object(PyTypeObject *type) {
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static PyObject *raise_errno(int error) {
    errno = -error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *decode_name(const char *name, Py_ssize_t length) {
    return PyUnicode_DecodeUTF8(name, length, "surrogateescape");
}

/* Leases */

static void run_done(Ring *self, struct run *run) {
    run->done = true;
    uint64_t position = 0;
    while (self->oldest && self->oldest->done) {
        struct run *freed = self->oldest;
        position = freed->end;
        self->oldest = freed->next;
        PyMem_Free(freed);
    }
    if (!self->oldest)
        self->newest = NULL;
    if (position && self->pid == getpid())
        ds_ring_free(&self->ring, &self->ring.data, position);
}

static void lease_free_if_unused(Lease *self) {
    if (self->released && self->views == 0 && self->run) {
        run_done(self->ring, self->run);
        self->run = NULL;
    }
}

static PyObject *lease_release(Lease *self, PyObject *Py_UNUSED(ignored)) {
    self->released = true;
    lease_free_if_unused(self);
    Py_RETURN_NONE;
}

static void lease_dealloc(Lease *self) {
    self->released = true;
    lease_free_if_unused(self);
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

/* Chunks */

static PyObject *chunk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"name", "data", "offset", "is_last", "flag", "sequence", "more", NULL};
    PyObject *name, *data;
    long long offset = -1;
    int is_last = 0, flag = 0, more = 0;
    unsigned long long sequence = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$LpiKp", keywords, &name, &data, &offset, &is_last,
                                     &flag, &sequence, &more))
        return NULL;
    Chunk *self = (Chunk *)make_object(type);
    if (!self)
        return NULL;
    self->offset = offset;
    self->is_last = (char)is_last;
    self->flag = flag;
    self->sequence = sequence;
    self->more = (char)more;
    self->name =
        PyBytes_Check(name) ? decode_name(PyBytes_AsString(name), PyBytes_Size(name)) : Py_NewRef(name);
    self->owner = PyBytes_FromObject(data);
    if (!self->name || !self->owner) {
        Py_DECREF(self);
        return NULL;
    }
    self->data = (const uint8_t *)PyBytes_AsString(self->owner);
    self->length = PyBytes_Size(self->owner);
    return (PyObject *)self;
}

static void chunk_dealloc(Chunk *self) {
    Py_XDECREF(self->name);
    Py_XDECREF(self->owner);
    free_object((PyObject *)self);
}

static int chunk_getbuffer(Chunk *self, Py_buffer *view, int flags) {
    Lease *lease = self->leased ? (Lease *)self->owner : NULL;
    if (lease && lease->released) {
        view->obj = NULL;
        PyErr_SetString(PyExc_ValueError, "the lease on this chunk was released; copy the bytes before that");
        return -1;
    }
    if (PyBuffer_FillInfo(view, (PyObject *)self, (void *)self->data, self->length, 1, flags) != 0)
        return -1;
    if (lease)
        lease->views++;
    return 0;
}

static void chunk_releasebuffer(Chunk *self, Py_buffer *Py_UNUSED(view)) {
    if (self->leased) {
        ((Lease *)self->owner)->views--;
        lease_free_if_unused((Lease *)self->owner);
    }
}

static Py_ssize_t chunk_length(Chunk *self) {
    return self->length;
}

static PyObject *chunk_data(PyObject *self, void *Py_UNUSED(closure)) {
    return PyMemoryView_FromObject(self);
}

static PyObject *chunk_repr(Chunk *self) {
    return PyUnicode_FromFormat("<Chunk %R offset=%lld length=%zd is_last=%d more=%d>", self->name,
                                self->offset, self->length, self->is_last, self->more);
}

static PyMemberDef chunk_members[] = {{"name", T_OBJECT_EX, offsetof(Chunk, name), READONLY, NULL},
                                      {"offset", T_LONGLONG, offsetof(Chunk, offset), READONLY, NULL},
                                      {"is_last", T_BOOL, offsetof(Chunk, is_last), READONLY, NULL},
                                      {"flag", T_INT, offsetof(Chunk, flag), READONLY, NULL},
                                      {"sequence", T_ULONGLONG, offsetof(Chunk, sequence), READONLY, NULL},
                                      {"more", T_BOOL, offsetof(Chunk, more), READONLY, NULL},
                                      {0}};
static PyGetSetDef chunk_getset[] = {{"data", (getter)chunk_data, NULL, NULL, NULL}, {0}};
static PyType_Slot chunk_slots[] = {{Py_tp_new, (void *)chunk_new},
                                    {Py_tp_dealloc, (void *)chunk_dealloc},
                                    {Py_tp_repr, (void *)chunk_repr},
                                    {Py_tp_members, chunk_members},
                                    {Py_tp_getset, chunk_getset},
                                    {Py_sq_length, (void *)chunk_length},
                                    {Py_bf_getbuffer, (void *)chunk_getbuffer},
                                    {Py_bf_releasebuffer, (void *)chunk_releasebuffer},
                                    {0, NULL}};
static PyType_Spec chunk_spec = {"dumpstream._native.Chunk", sizeof(Chunk), 0, Py_TPFLAGS_DEFAULT,
                                 chunk_slots};

static PyObject *leased_chunk(Lease *lease, const struct ds_view *view, PyObject *name) {
    Chunk *chunk = (Chunk *)make_object(chunk_type);
    if (!chunk)
        return NULL;
    chunk->name = Py_NewRef(name);
    chunk->owner = Py_NewRef((PyObject *)lease);
    chunk->leased = 1;
    chunk->data = view->data;
    chunk->length = view->data_length;
    chunk->offset = view->offset;
    chunk->sequence = view->sequence;
    chunk->flag = view->flag;
    chunk->is_last = (view->flags & DS_RECORD_LAST) != 0;
    chunk->more = (view->flags & DS_RECORD_MORE) != 0;
    return (PyObject *)chunk;
}

/* Ring: life */

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"size", "path", NULL};
    unsigned long long size;
    const char *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|$z", keywords, &size, &path))
        return NULL;
    Ring *self = (Ring *)make_object(type);
    if (!self)
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_ring_create(&self->ring, size, path);
    Py_END_ALLOW_THREADS;
    if (error) {
        Py_DECREF(self);
        return raise_errno(error);
    }
    self->pid = getpid();
    self->open = true;
    return (PyObject *)self;
}

/* Sets an error and returns false if the ring is not this process's to use. */
static bool ring_usable(Ring *self) {
    if (!self->open)
        PyErr_SetString(PyExc_ValueError, "the ring is closed");
    else if (self->pid != getpid())
        PyErr_SetString(PyExc_ValueError,
                        "the ring belongs to the parent process; a forked child must open its own");
    else
        return true;
    return false;
}

static void ring_unmap(Ring *self) {
    if (!self->open)
        return;
    self->open = false;
    if (self->pid != getpid()) {
        /* Not mapped here, and the address may be somebody else's by now. */
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
    if (!self->stuck) /* otherwise a call still uses it */
        free_object((PyObject *)self);
}

static PyObject *ring_close(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!self->oldest)
        ring_unmap(self); /* otherwise when the last lease is gone */
    Py_RETURN_NONE;
}

static PyObject *ring_attach(Ring *self, PyObject *args) {
    int block;
    unsigned long long limit_ns, max_file_bytes;
    if (!PyArg_ParseTuple(args, "pKK", &block, &limit_ns, &max_file_bytes) || !ring_usable(self))
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
    if (!PyArg_ParseTuple(args, "K", &limit_ns) || !ring_usable(self))
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_detach(&self->ring, limit_ns);
    Py_END_ALLOW_THREADS;
    self->stuck = error != 0;
    self->attached = false;
    return PyBool_FromLong(!self->stuck);
}

static PyObject *ring_discard(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!ring_usable(self))
        return NULL;
    ds_ring_set_state(&self->ring, DS_STATE_DISCARD);
    Py_RETURN_NONE;
}

/* Ring: reading */

/* Moves the notes that belong before the next chunk into `losses`. Returns the
 * position up to which chunks may be read before the next note, or -1. */
static int take_notes(Ring *self, PyObject *losses, uint64_t *until) {
    struct ds_lane *notes = &self->ring.notes;
    struct ds_view view;
    uint64_t position = notes->read;
    int found;
    *until = UINT64_MAX;
    while ((found = ds_ring_peek(&self->ring, notes, &position, &view)) == 1) {
        if (view.sequence > self->ring.data.read) {
            *until = view.sequence;
            return 0;
        }
        uint32_t cause = (uint32_t)view.flag < DS_CAUSE_COUNT ? (uint32_t)view.flag : DS_CAUSE_AFTER_LOSS;
        PyObject *loss =
            Py_BuildValue("(NsKN)", decode_name(view.name, view.name_length), CAUSE_NAMES[cause],
                          (unsigned long long)view.offset, PyBool_FromLong(view.flags & DS_RECORD_LAST));
        if (!loss || PyList_Append(losses, loss) != 0) {
            Py_XDECREF(loss);
            return -1;
        }
        Py_DECREF(loss);
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
    PyObject *name = NULL;
    const char *raw = NULL;
    uint32_t raw_length = 0;
    uint64_t start = *position;
    Py_ssize_t count = 0;
    int found = 0;
    while (count < most && *position < until && *position - start < bytes) {
        uint64_t next = *position;
        if ((found = ds_ring_peek(&self->ring, &self->ring.data, &next, &view)) != 1)
            break;
        /* Chunks of one file follow each other: one str serves them all. */
        if (!name || raw_length != view.name_length || memcmp(raw, view.name, raw_length) != 0) {
            Py_XDECREF(name);
            name = decode_name(raw = view.name, raw_length = view.name_length);
        }
        PyObject *chunk = name ? leased_chunk(lease, &view, name) : NULL;
        if (!chunk || PyList_Append(chunks, chunk) != 0) {
            Py_XDECREF(chunk);
            found = -1;
            break;
        }
        Py_DECREF(chunk);
        *position = self->ends[count++] = next;
    }
    Py_XDECREF(name);
    return found < 0 ? found : 0;
}

/* A note that came while the chunks were read belongs between them. */
static int cut_at_note(Ring *self, PyObject *chunks, uint64_t *position) {
    struct ds_view view;
    uint64_t note = self->ring.notes.read;
    int found = ds_ring_peek(&self->ring, &self->ring.notes, &note, &view);
    if (found != 1 || view.sequence >= *position)
        return found < 0 ? found : 0;
    Py_ssize_t count = PyList_Size(chunks);
    Py_ssize_t keep = count;
    while (keep > 0 && self->ends[keep - 1] > view.sequence)
        keep--;
    *position = keep ? self->ends[keep - 1] : self->ring.data.read;
    return PyList_SetSlice(chunks, keep, count, NULL);
}

static int lease_run(Ring *self, Lease *lease, uint64_t position) {
    lease->size = position - self->ring.data.read;
    if (!lease->size)
        return 0;
    struct run *run = PyMem_Malloc(sizeof *run);
    if (!run) {
        PyErr_NoMemory();
        return -1;
    }
    *run = (struct run){.end = position};
    if (self->newest)
        self->newest->next = run;
    else
        self->oldest = run;
    self->newest = lease->run = run;
    self->ring.data.read = position;
    return 0;
}

/* Takes losses and chunks, in that order of time, and leases the chunks. */
static int fill_lease(Ring *self, Lease *lease, PyObject *chunks, PyObject *losses, Py_ssize_t most,
                      uint64_t bytes) {
    uint64_t until;
    uint64_t position = self->ring.data.read;
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

static PyObject *ring_lease(Ring *self, PyObject *args) {
    Py_ssize_t most;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(args, "nK", &most, &bytes) || !ring_usable(self))
        return NULL;
    Lease *lease = (Lease *)make_object(lease_type);
    PyObject *chunks = PyList_New(0);
    PyObject *losses = PyList_New(0);
    PyObject *result = NULL;
    if (lease && chunks && losses) {
        lease->ring = (Ring *)Py_NewRef((PyObject *)self);
        most = most < MAX_LEASE_RECORDS ? most : MAX_LEASE_RECORDS;
        if (fill_lease(self, lease, chunks, losses, most, bytes) == 0) {
            bool any = lease->size || PyList_Size(losses) > 0;
            result = any ? PyTuple_Pack(3, chunks, losses, (PyObject *)lease) : Py_NewRef(Py_None);
        }
    }
    Py_XDECREF((PyObject *)lease);
    Py_XDECREF(chunks);
    Py_XDECREF(losses);
    return result;
}

static PyObject *ring_arm(Ring *self, PyObject *args) {
    unsigned long long distance;
    if (!PyArg_ParseTuple(args, "K", &distance) || !ring_usable(self))
        return NULL;
    return PyBool_FromLong(ds_ring_arm(&self->ring, distance));
}

static PyObject *ring_disarm(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!ring_usable(self))
        return NULL;
    ds_ring_disarm(&self->ring);
    Py_RETURN_NONE;
}

static PyObject *ring_fileno(Ring *self, PyObject *Py_UNUSED(ignored)) {
    return ring_usable(self) ? PyLong_FromLong(self->ring.event_fd) : NULL;
}

/* The names that are still refused, with their bytes, after `detach`. */
static PyObject *ring_refused(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!ring_usable(self))
        return NULL;
    PyObject *names = PyList_New(0);
    for (uint32_t i = 0; names && i < DS_REFUSED_MAX; i++) {
        const char *name;
        uint32_t length;
        uint64_t bytes;
        if (!ds_refused_file(i, &name, &length, &bytes))
            continue;
        PyObject *item = Py_BuildValue("(NK)", decode_name(name, length), (unsigned long long)bytes);
        if (!item || PyList_Append(names, item) != 0)
            Py_CLEAR(names);
        Py_XDECREF(item);
    }
    return names;
}

static PyObject *ring_statistics(Ring *self, PyObject *Py_UNUSED(ignored)) {
    if (!ring_usable(self))
        return NULL;
    struct ds_control *control = self->ring.control;
    PyObject *losses = PyDict_New();
    for (int i = 0; losses && i < DS_CAUSE_COUNT; i++) {
        unsigned long long chunks = atomic_load(&control->lost_chunks[i]);
        PyObject *loss =
            chunks ? Py_BuildValue("(KK)", chunks, (unsigned long long)atomic_load(&control->lost_bytes[i]))
                   : NULL;
        if (loss && PyDict_SetItemString(losses, CAUSE_NAMES[i], loss) != 0)
            Py_CLEAR(losses);
        Py_XDECREF(loss);
    }
    if (!losses)
        return NULL;
    uint64_t tail = atomic_load(&control->data.tail);
    return Py_BuildValue("(KKKKKN)", (unsigned long long)self->ring.data.size,
                         (unsigned long long)(atomic_load(&control->data.head) - tail),
                         (unsigned long long)atomic_load(&control->callbacks),
                         (unsigned long long)atomic_load(&control->wakeups),
                         (unsigned long long)atomic_load(&control->unnamed_chunks), losses);
}

static PyMethodDef ring_methods[] = {{"attach", (PyCFunction)ring_attach, METH_VARARGS, NULL},
                                     {"detach", (PyCFunction)ring_detach, METH_VARARGS, NULL},
                                     {"discard", (PyCFunction)ring_discard, METH_NOARGS, NULL},
                                     {"lease", (PyCFunction)ring_lease, METH_VARARGS, NULL},
                                     {"arm", (PyCFunction)ring_arm, METH_VARARGS, NULL},
                                     {"disarm", (PyCFunction)ring_disarm, METH_NOARGS, NULL},
                                     {"fileno", (PyCFunction)ring_fileno, METH_NOARGS, NULL},
                                     {"refused", (PyCFunction)ring_refused, METH_NOARGS, NULL},
                                     {"statistics", (PyCFunction)ring_statistics, METH_NOARGS, NULL},
                                     {"close", (PyCFunction)ring_close, METH_NOARGS, NULL},
                                     {0}};
static PyType_Slot ring_slots[] = {{Py_tp_new, (void *)ring_new},
                                   {Py_tp_dealloc, (void *)ring_dealloc},
                                   {Py_tp_methods, ring_methods},
                                   {0, NULL}};
static PyType_Spec ring_spec = {"dumpstream._native.Ring", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT, ring_slots};

/* Dump headers */

static PyObject *dims_tuple(const struct ds_dims *dims) {
    PyObject *tuple = PyTuple_New(dims->count);
    for (uint32_t i = 0; tuple && i < dims->count; i++) {
        PyObject *dim = PyLong_FromUnsignedLongLong(dims->dim[i]);
        if (!dim || PyTuple_SetItem(tuple, i, dim) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *ranges_tuple(const struct ds_segment *segment) {
    uint32_t count = segment->range_start.count;
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *range = Py_BuildValue("(KK)", (unsigned long long)segment->range_start.dim[i],
                                        (unsigned long long)segment->range_end.dim[i]);
        if (!range || PyTuple_SetItem(tuple, i, range) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *text_of(struct ds_span span) {
    return decode_name((const char *)span.at, (Py_ssize_t)span.length);
}

static PyObject *unknown_of(enum ds_message_kind kind, struct ds_span message, bool any) {
    size_t length = any ? ds_unknown_fields(kind, message, NULL) : 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (bytes && length)
        ds_unknown_fields(kind, message, (uint8_t *)PyBytes_AsString(bytes));
    return bytes;
}

static PyObject *original_op_of(const struct ds_segment *segment) {
    if (!segment->original_op.present)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(NIii)", text_of(segment->original_op.name), segment->original_op.output_index,
                         segment->original_op.data_type, segment->original_op.format);
}

static PyObject *segment_tuple(const struct ds_dump_data *message, const struct ds_segment *segment) {
    size_t start = segment->data.at ? (size_t)(segment->data.at - message->begin) : 0;
    return Py_BuildValue(
        "(iiNNiKKKIIiNNnnN)", segment->data_type, segment->format, dims_tuple(&segment->shape),
        dims_tuple(&segment->original_shape), segment->sub_format, (unsigned long long)segment->size,
        (unsigned long long)segment->address, (unsigned long long)segment->offset, segment->arg_index,
        segment->input_type, segment->type, ranges_tuple(segment), original_op_of(segment), (Py_ssize_t)start,
        (Py_ssize_t)(start + segment->data.length),
        unknown_of(segment->kind, segment->message, segment->any_unknown));
}

/* What `parse_header` returns, while it is put together. */
struct parsed {
    unsigned long long time;
    bool any_unknown;
    PyObject *version, *op_name, *dfx_message, *attributes;
    PyObject *segments[DS_DUMP_DATA];
};

static bool append_new(PyObject *list, PyObject *item) {
    bool appended = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return appended;
}

static bool replace_text(PyObject **text, struct ds_span span) {
    Py_XDECREF(*text);
    *text = text_of(span);
    return *text != NULL;
}

static bool parsed_add(struct parsed *parsed, const struct ds_dump_data *message,
                       const struct ds_entry *entry) {
    switch (entry->kind) {
    case DS_ENTRY_UNKNOWN:
        parsed->any_unknown = true;
        return true;
    case DS_ENTRY_TIME:
        parsed->time = entry->time;
        return true;
    case DS_ENTRY_VERSION:
        return replace_text(&parsed->version, entry->text);
    case DS_ENTRY_OP_NAME:
        return replace_text(&parsed->op_name, entry->text);
    case DS_ENTRY_DFX_MESSAGE:
        return replace_text(&parsed->dfx_message, entry->text);
    case DS_ENTRY_ATTRIBUTE:
        return append_new(parsed->attributes,
                          Py_BuildValue("(NN)", text_of(entry->text), text_of(entry->value)));
    default:
        return append_new(parsed->segments[entry->segment.kind], segment_tuple(message, &entry->segment));
    }
}

static bool parsed_fill(struct parsed *parsed, struct ds_dump_data *message) {
    struct ds_entry entry;
    parsed->version = PyUnicode_FromString("");
    parsed->op_name = PyUnicode_FromString("");
    parsed->dfx_message = PyUnicode_FromString("");
    parsed->attributes = PyList_New(0);
    for (int i = 0; i < DS_DUMP_DATA; i++) {
        if (!(parsed->segments[i] = PyList_New(0)))
            return false;
    }
    if (!parsed->version || !parsed->op_name || !parsed->dfx_message || !parsed->attributes)
        return false;
    while (ds_dump_data_next(message, &entry)) {
        if (!parsed_add(parsed, message, &entry))
            return false;
    }
    return true;
}

static PyObject *raise_fault(const struct ds_dump_data *message) {
    PyObject *args = Py_BuildValue("(sn)", message->fault, (Py_ssize_t)message->fault_position);
    if (args)
        PyErr_SetObject(PyExc_ValueError, args);
    Py_XDECREF(args);
    return NULL;
}

static PyObject *parse_header(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    struct ds_dump_data message;
    struct parsed parsed = {0};
    PyObject *result = NULL;
    ds_dump_data_begin(&message, view.buf, (size_t)view.len);
    bool filled = parsed_fill(&parsed, &message);
    if (message.fault)
        raise_fault(&message);
    else if (filled)
        result = Py_BuildValue(
            "(OKOOOOOOON)", parsed.version, parsed.time, parsed.op_name, parsed.dfx_message,
            parsed.attributes, parsed.segments[DS_INPUT], parsed.segments[DS_OUTPUT],
            parsed.segments[DS_BUFFER], parsed.segments[DS_SPACE],
            unknown_of(DS_DUMP_DATA, (struct ds_span){message.begin, (size_t)view.len}, parsed.any_unknown));
    Py_XDECREF(parsed.version);
    Py_XDECREF(parsed.op_name);
    Py_XDECREF(parsed.dfx_message);
    Py_XDECREF(parsed.attributes);
    for (int i = 0; i < DS_DUMP_DATA; i++)
        Py_XDECREF(parsed.segments[i]);
    PyBuffer_Release(&view);
    return result;
}

/* Statistics */

#define CACHED_BYTES (128 << 10)
/* Below this, giving the GIL up costs more than it gains. */
#define UNLOCKED_BYTES (16 << 10)

typedef struct {
    PyObject_HEAD struct ds_statistics statistics;
    bool busy;
} Statistics;

static PyTypeObject *statistics_type, *summary_type;

/* Copies the 2^n values of `object` to `values`, again and again up to `size`. */
static int read_table(PyObject *object, size_t size, bool repeated, double *values) {
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) != 0)
        return -1;
    size_t given = (size_t)view.len / sizeof *values;
    bool fits = given == size || (repeated && given > 0 && given < size && (given & (given - 1)) == 0);
    fits = fits && view.format && strcmp(view.format, "d") == 0;
    for (size_t code = 0; fits && code < size; code++)
        values[code] = ((const double *)view.buf)[code % given];
    PyBuffer_Release(&view);
    if (!fits)
        PyErr_Format(PyExc_ValueError, "the table must be a buffer of %zu doubles", size);
    return fits ? 0 : -1;
}

static void raise_no_kind(const char *name) {
    char known[128] = "";
    for (int kind = 0; kind < DS_KINDS; kind++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s",
                 ds_kind_name((enum ds_kind)kind));
    PyErr_Format(PyExc_ValueError, "no kind %s; there are:%s", name, known);
}

static int find_kind(const char *name, PyObject *table, double min_normal, enum ds_kind *kind) {
    if (!ds_kind_find(name, kind))
        raise_no_kind(name);
    else if (ds_kind_table_size(*kind) > 0 && table == Py_None)
        PyErr_Format(PyExc_ValueError, "kind %s needs a table", name);
    else if (ds_kind_table_size(*kind) == 0 && (table != Py_None || min_normal != 0))
        PyErr_Format(PyExc_ValueError, "kind %s takes neither a table nor min_normal", name);
    else
        return 0;
    return -1;
}

static PyObject *statistics_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"kind", "table", "min_normal", "elements", "histogram", NULL};
    const char *name;
    PyObject *table = Py_None, *elements = Py_None;
    double values[256], min_normal = 0;
    int histogram = 0;
    enum ds_kind kind;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|$OdOp", keywords, &name, &table, &min_normal, &elements,
                                     &histogram) ||
        find_kind(name, table, min_normal, &kind) != 0)
        return NULL;
    if (table != Py_None && read_table(table, ds_kind_table_size(kind), kind == DS_BYTE, values) != 0)
        return NULL;
    uint64_t limit = elements == Py_None ? DS_UNLIMITED : PyLong_AsUnsignedLongLong(elements);
    if (limit == DS_UNLIMITED && PyErr_Occurred())
        return NULL;
    Statistics *self = (Statistics *)make_object(type);
    if (self)
        ds_statistics_init(&self->statistics, kind, table != Py_None ? values : NULL, min_normal, limit,
                           histogram != 0);
    return (PyObject *)self;
}

/* Sets an error and returns false while another thread is inside `update`. */
static bool statistics_usable(Statistics *self) {
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread updates these statistics; use one at a time");
    return !self->busy;
}

static PyObject *statistics_update(Statistics *self, PyObject *data) {
    Py_buffer view;
    if (!statistics_usable(self) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    if (view.len < UNLOCKED_BYTES) {
        ds_statistics_update(&self->statistics, view.buf, (size_t)view.len);
    } else {
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS;
        ds_statistics_update(&self->statistics, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS;
        self->busy = false;
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *exact_integer(__int128 value) {
    char text[40];
    unsigned __int128 magnitude = value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
    snprintf(text, sizeof text, "%s%llx%016llx", value < 0 ? "-" : "", (unsigned long long)(magnitude >> 64),
             (unsigned long long)magnitude);
    return PyLong_FromString(text, NULL, 16);
}

/* An integer where the kind is one, None where there is nothing to tell. */
static PyObject *extreme(const struct ds_summary *summary, uint64_t count, __int128 exact, double value) {
    if (count == 0)
        return Py_NewRef(Py_None);
    return summary->is_integer ? exact_integer(exact) : PyFloat_FromDouble(value);
}

static PyObject *average(uint64_t count, double value) {
    return count ? PyFloat_FromDouble(value) : Py_NewRef(Py_None);
}

static PyObject *histogram_list(const struct ds_summary *summary) {
    if (!summary->has_histogram)
        return Py_NewRef(Py_None);
    PyObject *list = PyList_New(256);
    for (Py_ssize_t bin = 0; list && bin < 256; bin++) {
        PyObject *count = PyLong_FromUnsignedLongLong(summary->histogram[bin]);
        if (!count || PyList_SetItem(list, bin, count) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyStructSequence_Field summary_fields[] = {
    {"count", NULL},      {"nan", NULL},         {"pos_inf", NULL},   {"neg_inf", NULL}, {"zero", NULL},
    {"negative", NULL},   {"subnormal", NULL},   {"saturated", NULL}, {"max", NULL},     {"min", NULL},
    {"sum", NULL},        {"mean", NULL},        {"l2norm", NULL},    {"std", NULL},     {"finite_max", NULL},
    {"finite_min", NULL}, {"finite_mean", NULL}, {"histogram", NULL}, {NULL, NULL}};
static PyStructSequence_Desc summary_desc = {"dumpstream._native.Summary", NULL, summary_fields, 18};

static PyObject *summary_object(const struct ds_summary *it) {
    const uint64_t counts[] = {it->count, it->nan,      it->pos_inf,  it->neg_inf,
                               it->zero,  it->negative, it->subnormal};
    PyObject *object = PyStructSequence_New(summary_type);
    if (!object)
        return NULL;
    Py_ssize_t field = 0;
    for (; field < 7; field++)
        PyStructSequence_SetItem(object, field, PyLong_FromUnsignedLongLong(counts[field]));
    PyObject *values[] = {
        it->has_saturated ? PyLong_FromUnsignedLongLong(it->saturated) : Py_NewRef(Py_None),
        extreme(it, it->count, it->exact_max, it->max),
        extreme(it, it->count, it->exact_min, it->min),
        it->is_integer ? exact_integer(it->exact_sum) : PyFloat_FromDouble(it->sum),
        average(it->count, it->mean),
        PyFloat_FromDouble(it->l2norm),
        average(it->count, it->std),
        extreme(it, it->finite, it->exact_max, it->finite_max),
        extreme(it, it->finite, it->exact_min, it->finite_min),
        average(it->finite, it->finite_mean),
        histogram_list(it),
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        PyStructSequence_SetItem(object, field++, values[i]);
    if (PyErr_Occurred())
        Py_CLEAR(object);
    return object;
}

static PyObject *statistics_result(Statistics *self, PyObject *Py_UNUSED(ignored)) {
    struct ds_summary summary;
    if (!statistics_usable(self))
        return NULL;
    ds_statistics_result(&self->statistics, &summary);
    return summary_object(&summary);
}

static PyObject *use_kernels(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    const char *used = ds_kernels_use(name);
    if (!used)
        return PyErr_Format(PyExc_ValueError, "this machine has no kernels %s; \"auto\" takes the fastest",
                            name);
    return PyUnicode_FromString(used);
}

static PyMethodDef statistics_methods[] = {{"update", (PyCFunction)statistics_update, METH_O, NULL},
                                           {"result", (PyCFunction)statistics_result, METH_NOARGS, NULL},
                                           {0}};
static PyType_Slot statistics_slots[] = {{Py_tp_new, (void *)statistics_new},
                                         {Py_tp_dealloc, (void *)free_object},
                                         {Py_tp_methods, statistics_methods},
                                         {0, NULL}};
static PyType_Spec statistics_spec = {"dumpstream._native.Statistics", sizeof(Statistics), 0,
                                      Py_TPFLAGS_DEFAULT, statistics_slots};

static int add_summary(PyObject *module) {
    summary_type = PyStructSequence_NewType(&summary_desc);
    return summary_type ? PyModule_AddObjectRef(module, "Summary", (PyObject *)summary_type) : -1;
}

/* Functions */

static PyObject *callback_address(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromVoidPtr((void *)(uintptr_t)ds_on_chunk);
}

static PyObject *late_calls(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(ds_late_calls());
}

static PyObject *push(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    Py_ssize_t name_length;
    unsigned long long address;
    int is_last, flag;
    long long length, offset;
    if (!PyArg_ParseTuple(args, "y#KLpLi", &name, &name_length, &address, &length, &is_last, &offset, &flag))
        return NULL;
    if (length < 0) {
        PyErr_SetString(PyExc_ValueError, "length must not be negative");
        return NULL;
    }
    int32_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = ds_push_chunk(name, (uint64_t)name_length, (const void *)(uintptr_t)address, (uint64_t)length,
                           (uint32_t)is_last, offset, flag);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(result);
}

static PyObject *read_header(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    struct ds_header header;
    enum ds_header_state state = ds_header_read(view.buf, (size_t)view.len, &header);
    PyBuffer_Release(&view);
    return Py_BuildValue("(iKK)", state, (unsigned long long)header.total,
                         (unsigned long long)header.present);
}

static PyObject *rename_noreplace(PyObject *Py_UNUSED(module), PyObject *args) {
    int from_fd, to_fd;
    PyObject *from, *to;
    if (!PyArg_ParseTuple(args, "iO&iO&", &from_fd, PyUnicode_FSConverter, &from, &to_fd,
                          PyUnicode_FSConverter, &to))
        return NULL;
    const char *from_name = PyBytes_AsString(from), *to_name = PyBytes_AsString(to);
    int error = 0;
    Py_BEGIN_ALLOW_THREADS;
    if (renameat2(from_fd, from_name, to_fd, to_name, RENAME_NOREPLACE) != 0)
        error = -errno;
    /* File systems without the flag: a hard link never replaces either. */
    if (error == -EINVAL || error == -ENOSYS) {
        error = linkat(from_fd, from_name, to_fd, to_name, 0) != 0 ? -errno : 0;
        if (!error && unlinkat(from_fd, from_name, 0) != 0)
            error = -errno;
    }
    Py_END_ALLOW_THREADS;
    Py_DECREF(from);
    Py_DECREF(to);
    if (error)
        return raise_errno(error);
    Py_RETURN_NONE;
}

static PyObject *sync_filesystem(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd, failed;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    failed = syncfs(fd);
    Py_END_ALLOW_THREADS;
    if (failed)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"callback_address", callback_address, METH_NOARGS, NULL},
                                  {"late_calls", late_calls, METH_NOARGS, NULL},
                                  {"push", push, METH_VARARGS, NULL},
                                  {"read_header", read_header, METH_O, NULL},
                                  {"parse_header", parse_header, METH_O, NULL},
                                  {"rename_noreplace", rename_noreplace, METH_VARARGS, NULL},
                                  {"sync_filesystem", sync_filesystem, METH_VARARGS, NULL},
                                  {"use_kernels", use_kernels, METH_VARARGS, NULL},
                                  {0}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dumpstream._native", NULL, -1, functions, NULL, NULL, NULL, NULL};

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **type) {
    PyObject *made = PyType_FromSpec(spec);
    if (!made)
        return -1;
    *type = (PyTypeObject *)made;
    return PyModule_AddObjectRef(module, name, made);
}

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    PyObject *causes = PyTuple_New(DS_CAUSE_COUNT);
    for (int i = 0; causes && i < DS_CAUSE_COUNT; i++)
        PyTuple_SetItem(causes, i, PyUnicode_FromString(CAUSE_NAMES[i]));
    int failed = !causes || PyModule_AddObjectRef(module, "CAUSES", causes) != 0 ||
                 add_type(module, &ring_spec, "Ring", &ring_type) != 0 ||
                 add_type(module, &lease_spec, "Lease", &lease_type) != 0 ||
                 add_type(module, &chunk_spec, "Chunk", &chunk_type) != 0 ||
                 add_type(module, &statistics_spec, "Statistics", &statistics_type) != 0 ||
                 add_summary(module) != 0 ||
                 PyModule_AddIntConstant(module, "CACHED_BYTES", CACHED_BYTES) != 0;
    Py_XDECREF(causes);
    if (failed)
        Py_CLEAR(module);
    return module;
}
