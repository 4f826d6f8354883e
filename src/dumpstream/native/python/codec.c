/* Encoder, Decoder: files to blocks, and back. */
#include "module.h"

#include <string.h>

#include "dumpstream/codec.h"

/* For fewer bytes, releasing the GIL costs more than it gains. */
#define UNLOCKED_BYTES (16 << 10)

/* The names are those of the codecs. */
static const char *const EFFORTS[] = {
    [DS_FAST] = "float", [DS_AUTO] = "auto", [DS_SMALL] = "float-small", [DS_KEEP] = "none"};

typedef struct {
    PyObject_HEAD struct ds_encoder *encoder;
    bool busy;
} Encoder;

typedef struct {
    PyObject_HEAD struct ds_decoder *decoder;
    bool busy;
} Decoder;

static bool take_turn(bool *busy) {
    if (*busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is using it");
        return false;
    }
    *busy = true;
    return true;
}

/* Encoder */

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"codec", "level", NULL};
    const char *codec;
    int level = 1, effort = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|i", keywords, &codec, &level))
        return NULL;
    while (effort <= DS_KEEP && strcmp(codec, EFFORTS[effort]) != 0)
        effort++;
    if (effort > DS_KEEP)
        return PyErr_Format(PyExc_ValueError, "no codec %s; there are: auto float float-small none", codec);
    Encoder *self = (Encoder *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->encoder = ds_encoder_new((enum ds_effort)effort, level);
    if (!self->encoder) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void encoder_dealloc(PyObject *self) {
    ds_encoder_free(((Encoder *)self)->encoder);
    free_object(self);
}

static size_t encode_unlocked(struct ds_encoder *encoder, const Py_buffer *data, uint64_t position,
                              const Py_buffer *layout, uint8_t *out) {
    size_t runs = (size_t)layout->len / sizeof(struct ds_run), made;
    PyThreadState *state = data->len >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
    made = ds_encode(encoder, data->buf, (size_t)data->len, position, layout->buf, runs, out);
    if (state)
        PyEval_RestoreThread(state);
    return made;
}

static PyObject *encoder_encode(PyObject *object, PyObject *args) {
    Encoder *self = (Encoder *)object;
    Py_buffer data, layout, out;
    unsigned long long position;
    if (!PyArg_ParseTuple(args, "y*Ky*w*", &data, &position, &layout, &out))
        return NULL;
    PyObject *result = NULL;
    if ((size_t)out.len < ds_encoded_bound((size_t)data.len))
        PyErr_SetString(PyExc_ValueError, "out is too small; see encoded_bound");
    else if ((size_t)layout.len % sizeof(struct ds_run) || (uintptr_t)layout.buf % _Alignof(struct ds_run))
        PyErr_SetString(PyExc_ValueError, "layout must be what layout_of returned");
    else if (take_turn(&self->busy)) {
        size_t made = encode_unlocked(self->encoder, &data, position, &layout, out.buf);
        self->busy = false;
        result = PyLong_FromSize_t(made);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&layout);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef encoder_methods[] = {{"encode", encoder_encode, METH_VARARGS, NULL}, {0}};
static PyType_Slot encoder_slots[] = {{Py_tp_new, (void *)encoder_new},
                                      {Py_tp_dealloc, (void *)encoder_dealloc},
                                      {Py_tp_methods, encoder_methods},
                                      {0, NULL}};
static PyType_Spec encoder_spec = {"dumpstream._native.Encoder", sizeof(Encoder), 0, Py_TPFLAGS_DEFAULT,
                                   encoder_slots};

/* Decoder */

static PyObject *decoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", keywords))
        return NULL;
    Decoder *self = (Decoder *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->decoder = ds_decoder_new();
    if (!self->decoder) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void decoder_dealloc(PyObject *self) {
    ds_decoder_free(((Decoder *)self)->decoder);
    free_object(self);
}

static struct ds_decoded decode_unlocked(struct ds_decoder *decoder, const Py_buffer *data,
                                         const Py_buffer *out) {
    struct ds_decoded done;
    PyThreadState *state = data->len >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
    done = ds_decode(decoder, data->buf, (size_t)data->len, out->buf, (size_t)out->len);
    if (state)
        PyEval_RestoreThread(state);
    return done;
}

static PyObject *decoder_decode(PyObject *object, PyObject *args) {
    Decoder *self = (Decoder *)object;
    Py_buffer data, out;
    if (!PyArg_ParseTuple(args, "y*w*", &data, &out))
        return NULL;
    PyObject *result = NULL;
    if (take_turn(&self->busy)) {
        struct ds_decoded done = decode_unlocked(self->decoder, &data, &out);
        self->busy = false;
        result = Py_BuildValue("(nnnz)", (Py_ssize_t)done.taken, (Py_ssize_t)done.made, (Py_ssize_t)done.need,
                               done.fault);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef decoder_methods[] = {{"decode", decoder_decode, METH_VARARGS, NULL}, {0}};
static PyType_Slot decoder_slots[] = {{Py_tp_new, (void *)decoder_new},
                                      {Py_tp_dealloc, (void *)decoder_dealloc},
                                      {Py_tp_methods, decoder_methods},
                                      {0, NULL}};
static PyType_Spec decoder_spec = {"dumpstream._native.Decoder", sizeof(Decoder), 0, Py_TPFLAGS_DEFAULT,
                                   decoder_slots};

/* Functions */

PyObject *layout_of(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    struct ds_run few[64];
    const size_t most = sizeof few / sizeof *few;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    size_t count = ds_layout_read(view.buf, (size_t)view.len, few, most);
    PyObject *layout = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof *few));
    if (layout && count <= most)
        memcpy(PyBytes_AsString(layout), few, count * sizeof *few);
    else if (layout)
        ds_layout_read(view.buf, (size_t)view.len, (struct ds_run *)(void *)PyBytes_AsString(layout), count);
    PyBuffer_Release(&view);
    return layout;
}

PyObject *encoded_bound(PyObject *Py_UNUSED(module), PyObject *length) {
    size_t given = PyLong_AsSize_t(length);
    return given == (size_t)-1 && PyErr_Occurred() ? NULL : PyLong_FromSize_t(ds_encoded_bound(given));
}

PyObject *crc32_of(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    PyThreadState *state = view.len >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
    uint32_t crc = ds_crc32(view.buf, (size_t)view.len);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

PyObject *has_libzstd(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(ds_zstd_found());
}

PyObject *hide_libzstd(PyObject *Py_UNUSED(module), PyObject *hidden) {
    int hide = PyObject_IsTrue(hidden);
    if (hide < 0)
        return NULL;
    ds_zstd_hide(hide);
    Py_RETURN_NONE;
}

int add_codec(PyObject *module) {
    if (PyModule_AddIntConstant(module, "BLOCK_MOST", DS_BLOCK_MOST) != 0 ||
        PyModule_AddIntConstant(module, "BLOCK_HEADER", DS_BLOCK_HEADER) != 0)
        return -1;
    return add_type(module, &encoder_spec) && add_type(module, &decoder_spec) ? 0 : -1;
}
