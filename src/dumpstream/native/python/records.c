/* Records: fixed structures that numpy reads as they lie. */
#include "module.h"

PyObject *bytes_of(const void *array, size_t count, size_t item) {
    return PyBytes_FromStringAndSize(array, (Py_ssize_t)(count * item));
}

int add_layout(PyObject *module, const char *name, const struct record_field *fields, size_t count,
               size_t size) {
    PyObject *names = PyList_New(0), *formats = PyList_New(0), *offsets = PyList_New(0);
    bool made = names && formats && offsets;
    for (size_t i = 0; made && i < count; i++)
        made = append_new(names, PyUnicode_FromString(fields[i].name)) == 0 &&
               append_new(formats, PyUnicode_FromString(fields[i].format)) == 0 &&
               append_new(offsets, PyLong_FromSize_t(fields[i].offset)) == 0;
    PyObject *layout = !made ? NULL
                             : Py_BuildValue("{sOsOsOsn}", "names", names, "formats", formats, "offsets",
                                             offsets, "itemsize", (Py_ssize_t)size);
    int failed = !layout || PyModule_AddObjectRef(module, name, layout) != 0;
    Py_XDECREF(names);
    Py_XDECREF(formats);
    Py_XDECREF(offsets);
    Py_XDECREF(layout);
    return failed ? -1 : 0;
}
