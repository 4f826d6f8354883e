/* new_npy_files: the tensors of many small dump files, each in a file of numpy's format. */
#include "dumpstream/npy_files.h"

#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "small_files.h"

static int read_types(PyObject *list, struct ds_npy_type *types) {
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        unsigned number, bytes;
        const char *name;
        int shaped;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "IsIp", &number, &name, &bytes, &shaped))
            return -1;
        if (number >= DS_DATA_TYPES || bytes == 0 || strlen(name) >= sizeof types->name) {
            PyErr_Format(PyExc_ValueError, "data type %u cannot be written as %s", number, name);
            return -1;
        }
        types[number] = (struct ds_npy_type){.known = true, .shaped = shaped != 0, .bytes = bytes};
        strcpy(types[number].name, name);
    }
    return 0;
}

/* Writes the tensors of files up to the first with an error; returns how many files that are, or -ENOMEM. */
static Py_ssize_t write_files(int dir_fd, const struct items *files, const struct items *stems,
                              const struct ds_npy_type *types, struct ds_npy_result *results) {
    struct reading *reading = begin_reading();
    Py_ssize_t done = reading ? 0 : -ENOMEM;
    for (bool failed = !reading; done < files->count && !failed; done++) {
        size_t length = 0;
        const uint8_t *data = read_item(&files->item[done], reading, &length);
        memset(&results[done], 0, sizeof results[done]);
        if (data)
            ds_npy_files_write(dir_fd, stems->item[done].text, data, length, types, &results[done]);
        failed = results[done].error != 0;
    }
    end_reading(reading);
    return done;
}

static PyObject *list_of(const struct ds_npy_result *results, Py_ssize_t count) {
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        const struct ds_npy_result *it = &results[i];
        PyObject *result = it->taken ? Py_BuildValue("(IKiII)", it->tensors, (unsigned long long)it->bytes,
                                                     -it->error, it->io, it->index)
                                     : Py_NewRef(Py_None);
        if (append_new(list, result) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static int check_stems(const struct items *files, const struct items *stems) {
    bool fitting = stems->count == files->count;
    for (Py_ssize_t i = 0; fitting && i < stems->count; i++)
        fitting = stems->item[i].path && strlen(stems->item[i].text) <= DS_NPY_STEM;
    if (!fitting)
        PyErr_SetString(PyExc_ValueError, "every file needs the stem of a name");
    return fitting ? 0 : -1;
}

static PyObject *write_items(int dir_fd, const struct items *files, const struct items *stems,
                             const struct ds_npy_type *types) {
    if (check_stems(files, stems) != 0)
        return NULL;
    struct ds_npy_result *results = calloc((size_t)files->count + 1, sizeof *results);
    Py_ssize_t done = -ENOMEM;
    Py_BEGIN_ALLOW_THREADS;
    if (results)
        done = write_files(dir_fd, files, stems, types, results);
    Py_END_ALLOW_THREADS;
    PyObject *result = done < 0 ? PyErr_NoMemory() : list_of(results, done);
    free(results);
    return result;
}

PyObject *new_npy_files(PyObject *Py_UNUSED(module), PyObject *args) {
    int dir_fd;
    PyObject *file_list, *stem_list, *type_list, *result = NULL;
    struct ds_npy_type types[DS_DATA_TYPES] = {0};
    struct items files, stems;
    if (!PyArg_ParseTuple(args, "iO!O!O!", &dir_fd, &PyList_Type, &file_list, &PyList_Type, &stem_list,
                          &PyList_Type, &type_list) ||
        read_types(type_list, types) != 0 || take_items(file_list, &files) != 0)
        return NULL;
    if (take_items(stem_list, &stems) == 0) {
        result = write_items(dir_fd, &files, &stems, types);
        release_items(&stems);
    }
    release_items(&files);
    return result;
}
