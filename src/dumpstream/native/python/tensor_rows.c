/* measure_files: the rows of many files as records; count_tensors: only how many there are. */
#include "module.h"

#include <stddef.h>
#include <stdlib.h>

#include "dumpstream/tensor_rows.h"

/* The layout of a record, for numpy. */

#define FIELD(name, format) {#name, format, offsetof(struct ds_tensor_row, name)}
#define SUMMARY(name, format) {#name, format, offsetof(struct ds_tensor_row, summary.name)}

static const struct record_field fields[] = {
    SUMMARY(exact_max, "V16"),   SUMMARY(exact_min, "V16"),
    FIELD(file, "u8"),           FIELD(size, "u8"),
    FIELD(address, "u8"),        FIELD(start, "u8"),
    FIELD(taken, "u8"),          FIELD(op_name_start, "u8"),
    FIELD(op_name_length, "u8"), SUMMARY(count, "u8"),
    SUMMARY(finite, "u8"),       SUMMARY(nan, "u8"),
    SUMMARY(pos_inf, "u8"),      SUMMARY(neg_inf, "u8"),
    SUMMARY(zero, "u8"),         SUMMARY(negative, "u8"),
    SUMMARY(subnormal, "u8"),    SUMMARY(max, "f8"),
    SUMMARY(min, "f8"),          SUMMARY(mean, "f8"),
    SUMMARY(l2norm, "f8"),       SUMMARY(std, "f8"),
    SUMMARY(finite_max, "f8"),   SUMMARY(finite_min, "f8"),
    SUMMARY(finite_mean, "f8"),  FIELD(data_type, "i4"),
    FIELD(format, "i4"),         FIELD(io, "u4"),
    FIELD(index, "u4"),          FIELD(dims, "u4"),
    FIELD(original_dims, "u4"),  FIELD(stored, "?"),
    SUMMARY(is_integer, "?"),
};

int add_tensor_rows(PyObject *module) {
    return add_layout(module, "TENSOR_ROW", fields, sizeof fields / sizeof *fields,
                      sizeof(struct ds_tensor_row));
}

/* Arguments */

static int read_readings(PyObject *list, struct ds_reading *readings) {
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        const char *name;
        unsigned number, components;
        enum ds_kind kind;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "IsI", &number, &name, &components))
            return -1;
        if (number >= DS_DATA_TYPES || !ds_kind_find(name, &kind) || ds_kind_table_size(kind) > 0 ||
            components < 1 || components > 2) {
            PyErr_Format(PyExc_ValueError, "data type %u cannot be read as %u %s", number, components, name);
            return -1;
        }
        readings[number] = (struct ds_reading){true, kind, components};
    }
    return 0;
}

struct views {
    Py_buffer *view;
    Py_ssize_t count;
};

static void release_views(struct views *views) {
    for (Py_ssize_t i = 0; i < views->count; i++)
        PyBuffer_Release(&views->view[i]);
    free(views->view);
}

static int take_views(PyObject *files, struct views *views) {
    Py_ssize_t count = PyList_Size(files);
    *views = (struct views){calloc((size_t)count + 1, sizeof *views->view), 0};
    if (!views->view) {
        PyErr_NoMemory();
        return -1;
    }
    while (views->count < count) {
        PyObject *file = PyList_GetItem(files, views->count);
        if (!file || PyObject_GetBuffer(file, &views->view[views->count], PyBUF_SIMPLE) != 0) {
            release_views(views);
            return -1;
        }
        views->count++;
    }
    return 0;
}

/* Rows */

static int add_files(struct ds_tensor_rows *rows, const struct views *views) {
    int result = 0;
    for (Py_ssize_t i = 0; i < views->count && result >= 0; i++)
        result = ds_tensor_rows_add(rows, views->view[i].buf, (size_t)views->view[i].len);
    return result;
}

static PyObject *rows_tuple(const struct ds_tensor_rows *rows) {
    const struct ds_dim_list *shapes = &rows->shapes, *original = &rows->original_shapes;
    return Py_BuildValue("(NNN)", bytes_of(rows->row, rows->count, sizeof *rows->row),
                         bytes_of(shapes->dim, shapes->count, sizeof *shapes->dim),
                         bytes_of(original->dim, original->count, sizeof *original->dim));
}

PyObject *measure_files(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *files, *list;
    struct ds_reading readings[DS_DATA_TYPES] = {0};
    struct views views;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &files, &PyList_Type, &list) ||
        read_readings(list, readings) != 0 || take_views(files, &views) != 0)
        return NULL;
    struct ds_tensor_rows rows;
    int error;
    ds_tensor_rows_init(&rows, readings);
    Py_BEGIN_ALLOW_THREADS;
    error = add_files(&rows, &views);
    Py_END_ALLOW_THREADS;
    PyObject *result = error < 0 ? PyErr_NoMemory() : rows_tuple(&rows);
    ds_tensor_rows_free(&rows);
    release_views(&views);
    return result;
}

PyObject *count_tensors(PyObject *Py_UNUSED(module), PyObject *files) {
    struct views views;
    if (!PyList_Check(files))
        return PyErr_Format(PyExc_TypeError, "files must be a list");
    if (take_views(files, &views) != 0)
        return NULL;
    PyObject *counts = PyList_New(views.count);
    for (Py_ssize_t i = 0; counts && i < views.count; i++) {
        size_t count = ds_count_tensors(views.view[i].buf, (size_t)views.view[i].len);
        PyObject *number = PyLong_FromSize_t(count);
        if (number)
            PyList_SetItem(counts, i, number);
        else
            Py_CLEAR(counts);
    }
    release_views(&views);
    return counts;
}
