/* list_operators: the dump files of a directory, with what their names say as records. file_sizes: their
 * sizes. */
#include "dumpstream/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "module.h"
#include "small_files.h"

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

/* Returns 0, or a negative errno. */
static int read_sizes(const char *path, const struct items *names, long long *sizes) {
    int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    for (Py_ssize_t i = 0; i < names->count; i++) {
        struct stat status;
        bool is_there = fstatat(directory, names->item[i].text, &status, AT_SYMLINK_NOFOLLOW) == 0;
        sizes[i] = is_there ? (long long)status.st_size : 0;
    }
    close(directory);
    return 0;
}

static PyObject *size_list(const char *path, const struct items *names) {
    long long *sizes = calloc((size_t)names->count + 1, sizeof *sizes);
    int error = -ENOMEM;
    Py_BEGIN_ALLOW_THREADS;
    if (sizes)
        error = read_sizes(path, names, sizes);
    Py_END_ALLOW_THREADS;
    PyObject *list = error ? raise_errno(error) : PyList_New(0);
    for (Py_ssize_t i = 0; list && i < names->count; i++)
        if (append_new(list, PyLong_FromLongLong(sizes[i])) != 0)
            Py_CLEAR(list);
    free(sizes);
    return list;
}

static int check_names(const struct items *names) {
    for (Py_ssize_t i = 0; i < names->count; i++)
        if (!names->item[i].path) {
            PyErr_SetString(PyExc_TypeError, "names must be str");
            return -1;
        }
    return 0;
}

PyObject *file_sizes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path, *list, *result = NULL;
    struct items names;
    if (!PyArg_ParseTuple(args, "O&O!", PyUnicode_FSConverter, &path, &PyList_Type, &list))
        return NULL;
    if (take_items(list, &names) == 0) {
        if (check_names(&names) == 0)
            result = size_list(PyBytes_AsString(path), &names);
        release_items(&names);
    }
    Py_DECREF(path);
    return result;
}
