/* Chunk: what one callback brought. */
#include "module.h"

#include <string.h>

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

static PyTypeObject *chunk_type;

static PyObject *chunk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"name", "data", "offset", "is_last", "flag", "sequence", "more", NULL};
    PyObject *name, *data;
    long long offset = -1;
    int is_last = 0, flag = 0, more = 0;
    unsigned long long sequence = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|Lp$iKp:Chunk", keywords, &name, &data, &offset,
                                     &is_last, &flag, &sequence, &more))
        return NULL;
    if (!PyUnicode_Check(name) && !PyBytes_Check(name)) {
        PyErr_Format(PyExc_TypeError, "the name of a chunk is str or bytes, not %R",
                     (PyObject *)Py_TYPE(name));
        return NULL;
    }
    if (!PyObject_CheckBuffer(data)) {
        PyErr_Format(PyExc_TypeError, "the data of a chunk are bytes or another buffer, not %R",
                     (PyObject *)Py_TYPE(data));
        return NULL;
    }
    if (offset < -1) {
        PyErr_Format(PyExc_ValueError, "the offset of a chunk is at least 0, or -1 to append, not %lld",
                     offset);
        return NULL;
    }
    Chunk *self = (Chunk *)PyType_GenericAlloc(type, 0);
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
        lease_settle((Lease *)self->owner);
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

/* The stub says more. */
static const char chunk_doc[] =
    "Chunk(name, data, offset=-1, is_last=False, *, flag=0, sequence=0, more=False)\n--\n\n"
    "The bytes that one call of the dump callback brought for the file *name*.\n\n"
    "A chunk that you make copies *data*. Its bytes go to *offset* in the file, or to its current end if\n"
    "*offset* is -1. *is_last* says that no further chunk of the file follows.";

static PyMemberDef chunk_members[] = {{"name", T_OBJECT_EX, offsetof(Chunk, name), READONLY, NULL},
                                      {"offset", T_LONGLONG, offsetof(Chunk, offset), READONLY, NULL},
                                      {"is_last", T_BOOL, offsetof(Chunk, is_last), READONLY, NULL},
                                      {"flag", T_INT, offsetof(Chunk, flag), READONLY, NULL},
                                      {"sequence", T_ULONGLONG, offsetof(Chunk, sequence), READONLY, NULL},
                                      {"more", T_BOOL, offsetof(Chunk, more), READONLY, NULL},
                                      {0}};
static PyGetSetDef chunk_getset[] = {{"data", (getter)chunk_data, NULL, NULL, NULL}, {0}};
static PyType_Slot chunk_slots[] = {{Py_tp_new, (void *)chunk_new},
                                    {Py_tp_doc, (void *)chunk_doc},
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

static PyObject *leased_chunk(Lease *lease, const struct ds_message *message, PyObject *name) {
    Chunk *chunk = (Chunk *)PyType_GenericAlloc(chunk_type, 0);
    if (!chunk)
        return NULL;
    chunk->name = Py_NewRef(name);
    chunk->owner = Py_NewRef((PyObject *)lease);
    chunk->leased = 1;
    chunk->data = message->data;
    chunk->length = message->data_length;
    chunk->offset = message->offset;
    chunk->sequence = message->sequence;
    chunk->flag = message->flag;
    chunk->is_last = (message->flags & DS_RECORD_LAST) != 0;
    chunk->more = (message->flags & DS_RECORD_MORE) != 0;
    return (PyObject *)chunk;
}

int append_chunks(PyObject *chunks, Lease *lease, Py_ssize_t most, const struct ds_records *records,
                  uint64_t *position) {
    /* Chunks of one file follow each other, and share one str. */
    struct ds_message previous = {0}, message;
    PyObject *name = NULL;
    uint64_t next = *position;
    int error = 0, found = 0;
    while (!error && most-- > 0 && (found = ds_records_next(records, &next, &message)) == 1 &&
           !(message.flags & DS_RECORD_MARK)) {
        if (!name || previous.name_length != message.name_length ||
            memcmp(previous.name, message.name, message.name_length) != 0) {
            Py_XDECREF(name);
            name = decode_name(message.name, message.name_length);
        }
        error = append_new(chunks, name ? leased_chunk(lease, &message, name) : NULL);
        previous = message;
        *position = next;
    }
    Py_XDECREF(name);
    if (found < 0) {
        raise_errno(found);
        error = -1;
    }
    return error;
}

int add_chunk(PyObject *module) {
    chunk_type = add_type(module, &chunk_spec);
    return chunk_type ? 0 : -1;
}
