/* list_operators: the dump files of a directory, with what their names say as records. */
#include "dumpstream/listing.h"

#include <string.h>

#include "module.h"

#define FIELD(name, format) {#name, format, offsetof(struct ds_operator_name, name)}

static const struct record_field fields[] = {FIELD(operator_hash, "u8"), FIELD(sequence, "i8"),
                                             FIELD(task, "i8"), FIELD(time, "i8")};

int add_operator_names(PyObject *module) {
    return add_layout(module, "OPERATOR_NAME", fields, sizeof fields / sizeof *fields,
                      sizeof(struct ds_operator_name));
}

static PyObject *names_of(const char *const *names, size_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *name = decode_name(names[i], (Py_ssize_t)strlen(names[i]));
        if (name)
            PyList_SetItem(list, (Py_ssize_t)i, name);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *listing_tuple(const struct ds_listing *listing) {
    PyObject *said =
        listing->said ? bytes_of(listing->said, listing->files, sizeof *listing->said) : Py_NewRef(Py_None);
    return Py_BuildValue("(NNN)", names_of(listing->file, listing->files),
                         names_of(listing->folder, listing->folders), said);
}

PyObject *list_operators(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    const char *key_bytes;
    Py_ssize_t key_size;
    struct ds_journal_key key;
    struct ds_listing listing;
    if (!PyArg_ParseTuple(args, "O&y#", PyUnicode_FSConverter, &path, &key_bytes, &key_size))
        return NULL;
    if (key_size != sizeof key) {
        Py_DECREF(path);
        return PyErr_Format(PyExc_ValueError, "a key has %zu bytes", sizeof key);
    }
    memcpy(&key, key_bytes, sizeof key);
    const char *text = PyBytes_AsString(path);
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_listing_read(&listing, text, key);
    Py_END_ALLOW_THREADS;
    PyObject *result = error ? raise_errno(error) : listing_tuple(&listing);
    ds_listing_free(&listing);
    Py_DECREF(path);
    return result;
}
