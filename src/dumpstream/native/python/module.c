/* The module: its functions, and what its types share. */
#include "module.h"

#include <errno.h>

#include "dumpstream/callback.h"
#include "dumpstream/header.h"

const char *const CAUSE_NAMES[DS_CAUSE_COUNT] = {
    [DS_CAUSE_NULL_CHUNK] = "null_chunk", [DS_CAUSE_BAD_LENGTH] = "bad_length",
    [DS_CAUSE_BAD_NAME] = "bad_name",     [DS_CAUSE_BAD_OFFSET] = "bad_offset",
    [DS_CAUSE_TOO_LARGE] = "too_large",   [DS_CAUSE_FULL] = "ring_full",
    [DS_CAUSE_TIMEOUT] = "timeout",       [DS_CAUSE_AFTER_LOSS] = "after_loss",
    [DS_CAUSE_DISCARDED] = "discarded",   [DS_CAUSE_UNFINISHED] = "unfinished",
};

/* Objects */

void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *raise_errno(int error) {
    errno = -error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

PyObject *decode_name(const char *name, Py_ssize_t length) {
    return PyUnicode_DecodeUTF8(name, length, "surrogateescape");
}

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(spec);
    if (type && PyModule_AddType(module, type) != 0)
        Py_CLEAR(type);
    return type;
}

int append_new(PyObject *list, PyObject *item) {
    int result = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return result;
}

/* Functions */

static PyObject *callback_address(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromVoidPtr((void *)(uintptr_t)ds_on_chunk);
}

static PyObject *mark_step(PyObject *Py_UNUSED(module), PyObject *number) {
    long long step = PyLong_AsLongLong(number);
    if (step == -1 && PyErr_Occurred())
        return NULL;
    int error = ds_mark_step(step);
    if (error && error != -ENOTCONN)
        return raise_errno(error);
    return PyBool_FromLong(!error);
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

static PyMethodDef functions[] = {{"callback_address", callback_address, METH_NOARGS, NULL},
                                  {"mark_step", mark_step, METH_O, NULL},
                                  {"late_calls", late_calls, METH_NOARGS, NULL},
                                  {"push", push, METH_VARARGS, NULL},
                                  {"read_header", read_header, METH_O, NULL},
                                  {"parse_header", parse_header, METH_O, NULL},
                                  {"measure_files", measure_files, METH_VARARGS, NULL},
                                  {"count_tensors", count_tensors, METH_O, NULL},
                                  {"compare_files", compare_files, METH_VARARGS, NULL},
                                  {"count_segments", count_segments, METH_O, NULL},
                                  {"list_operators", list_operators, METH_VARARGS, NULL},
                                  {"file_sizes", file_sizes, METH_VARARGS, NULL},
                                  {"scan_journal", scan_journal, METH_VARARGS, NULL},
                                  {"summarise_journal", summarise_journal, METH_VARARGS, NULL},
                                  {"hash_name", hash_name, METH_VARARGS, NULL},
                                  {"new_files", new_files, METH_VARARGS, NULL},
                                  {"new_npy_files", new_npy_files, METH_VARARGS, NULL},
                                  {"rename_noreplace", rename_noreplace, METH_VARARGS, NULL},
                                  {"sync_filesystem", sync_filesystem, METH_VARARGS, NULL},
                                  {"layout_of", layout_of, METH_O, NULL},
                                  {"encoded_bound", encoded_bound, METH_O, NULL},
                                  {"crc32", crc32_of, METH_O, NULL},
                                  {"has_libzstd", has_libzstd, METH_NOARGS, NULL},
                                  {"hide_libzstd", hide_libzstd, METH_O, NULL},
                                  {"use_kernels", use_kernels, METH_VARARGS, NULL},
                                  {0}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dumpstream._native", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    PyObject *causes = PyTuple_New(DS_CAUSE_COUNT);
    for (int i = 0; causes && i < DS_CAUSE_COUNT; i++)
        PyTuple_SetItem(causes, i, PyUnicode_FromString(CAUSE_NAMES[i]));
    int failed = !causes || PyModule_AddObjectRef(module, "CAUSES", causes) != 0 || add_rings(module) != 0 ||
                 add_lease(module) != 0 || add_chunk(module) != 0 || add_statistics(module) != 0 ||
                 add_tensor_rows(module) != 0 || add_comparison(module) != 0 || add_file_pairs(module) != 0 ||
                 add_operator_names(module) != 0 || add_codec(module) != 0;
    Py_XDECREF(causes);
    if (failed)
        Py_CLEAR(module);
    return module;
}
