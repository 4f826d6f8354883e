/* compare_files: how the tensors of many pairs of small files differ, as records; count_segments: which
 * tensors small files have. */
#include "module.h"

#include <stddef.h>
#include <stdlib.h>

#include "dumpstream/file_pairs.h"
#include "small_files.h"

/* The layout of a record, for numpy. */

#define FIELD(name, format) {#name, format, offsetof(struct ds_pair_row, name)}
#define SIDE(name, place, number, format)                                                                    \
    {name, format, offsetof(struct ds_pair_row, place) + number * sizeof(((struct ds_pair_row *)0)->place[0])}
#define SUMMARY(name, of, format) {name, format, offsetof(struct ds_pair_row, summary.of)}

static const struct record_field fields[] = {
    SUMMARY("count", count, "u8"),
    SUMMARY("finite", finite, "u8"),
    SUMMARY("nan_both", nan_both, "u8"),
    SUMMARY("nan_mine", nan_mine, "u8"),
    SUMMARY("nan_golden", nan_golden, "u8"),
    SUMMARY("inf_differs", inf_differs, "u8"),
    SUMMARY("bit_equal", bit_equal, "u8"),
    SUMMARY("beyond_1", beyond_1, "u8"),
    SUMMARY("beyond_5", beyond_5, "u8"),
    SUMMARY("xx", xx, "f8"),
    SUMMARY("yy", yy, "f8"),
    SUMMARY("xy", xy, "f8"),
    SUMMARY("errors", errors, "f8"),
    SUMMARY("squares", squares, "f8"),
    SUMMARY("rmse", rmse, "f8"),
    SUMMARY("relative", relative, "f8"),
    SUMMARY("max_relative", max_relative, "f8"),
    SUMMARY("mean", x_mean, "f8"),
    SUMMARY("golden_mean", y_mean, "f8"),
    SUMMARY("std", x_std, "f8"),
    SUMMARY("golden_std", y_std, "f8"),
    SUMMARY("max_error", max_error, "f8"),
    SUMMARY("max_ulp", max_ulp, "f8"),
    SUMMARY("worst", worst, "u8"),
    SUMMARY("worst_mine", worst_x, "f8"),
    SUMMARY("worst_golden", worst_y, "f8"),
    SUMMARY("kl", divergence, "f8"),
    SUMMARY("exact_max", exact_max, "V16"),
    SUMMARY("exact_mine", exact_x, "V16"),
    SUMMARY("exact_golden", exact_y, "V16"),
    SUMMARY("has_ulp", has_ulp, "?"),
    SUMMARY("has_kl", has_divergence, "?"),
    SUMMARY("is_integer", is_integer, "?"),
    FIELD(pair, "u8"),
    SIDE("size", size, 0, "u8"),
    SIDE("golden_size", size, 1, "u8"),
    SIDE("address", address, 0, "u8"),
    SIDE("golden_address", address, 1, "u8"),
    SIDE("data_type", data_type, 0, "i4"),
    SIDE("golden_data_type", data_type, 1, "i4"),
    FIELD(format, "i4"),
    FIELD(io, "u4"),
    FIELD(index, "u4"),
    FIELD(dims, "u4"),
    FIELD(original_dims, "u4"),
};

int add_file_pairs(PyObject *module) {
    return add_layout(module, "PAIR_ROW", fields, sizeof fields / sizeof *fields, sizeof(struct ds_pair_row));
}

/* Arguments */

#define MOST_ARRANGED 64

struct pair_types {
    struct ds_pair_type type[DS_DATA_TYPES];
    int32_t arranged[MOST_ARRANGED];
    size_t arranged_count;
};

static int read_type(PyObject *tuple, struct pair_types *types) {
    unsigned number, components;
    PyObject *side;
    if (!PyArg_ParseTuple(tuple, "IIO!", &number, &components, &PyTuple_Type, &side))
        return -1;
    if (number >= DS_DATA_TYPES || components < 1 || components > 2) {
        PyErr_Format(PyExc_ValueError, "data type %u cannot have %u components", number, components);
        return -1;
    }
    struct ds_pair_type *type = &types->type[number];
    if (read_side(side, &type->side) != 0)
        return -1;
    if (ds_kind_table_size(type->side.kind) > 0) {
        PyErr_Format(PyExc_ValueError, "data type %u needs a table", number);
        return -1;
    }
    type->known = true;
    type->components = components;
    return 0;
}

static int read_types(PyObject *list, PyObject *arranged, struct pair_types *types) {
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        if (read_type(PyList_GetItem(list, i), types) != 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(arranged) && i < MOST_ARRANGED; i++) {
        types->arranged[i] = (int32_t)PyLong_AsLong(PyList_GetItem(arranged, i));
        types->arranged_count++;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Rows */

static int add_pairs(struct ds_file_pairs *pairs, const struct items *mine, const struct items *golden,
                     uint8_t *taken) {
    struct reading *ours = begin_reading(), *theirs = begin_reading();
    int result = ours && theirs ? 0 : -ENOMEM;
    for (Py_ssize_t i = 0; i < mine->count && result >= 0; i++) {
        size_t length = 0, other_length = 0;
        const uint8_t *other = NULL, *data = read_item(&mine->item[i], ours, &length);
        if (data)
            other = read_item(&golden->item[i], theirs, &other_length);
        if (other)
            result = ds_file_pairs_add(pairs, data, length, other, other_length);
        else
            pairs->pairs++;
        taken[i] = other && result == 1;
    }
    end_reading(ours);
    end_reading(theirs);
    return result;
}

static PyObject *rows_of(struct ds_file_pairs *pairs, const struct items *mine, const struct items *golden) {
    uint8_t *taken = calloc((size_t)mine->count + 1, 1);
    int error = taken ? 0 : -ENOMEM;
    Py_BEGIN_ALLOW_THREADS;
    if (!error)
        error = add_pairs(pairs, mine, golden, taken);
    Py_END_ALLOW_THREADS;
    const struct ds_dim_list *shapes = &pairs->shapes, *original = &pairs->original_shapes;
    PyObject *result = error < 0
                           ? PyErr_NoMemory()
                           : Py_BuildValue("(NNNN)", bytes_of(taken, (size_t)mine->count, 1),
                                           bytes_of(pairs->row, pairs->count, sizeof *pairs->row),
                                           bytes_of(shapes->dim, shapes->count, sizeof *shapes->dim),
                                           bytes_of(original->dim, original->count, sizeof *original->dim));
    free(taken);
    return result;
}

PyObject *compare_files(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *mine_list, *golden_list, *type_list, *arranged;
    int kl;
    struct pair_types types = {0};
    struct items mine, golden;
    if (!PyArg_ParseTuple(args, "O!O!O!O!p", &PyList_Type, &mine_list, &PyList_Type, &golden_list,
                          &PyList_Type, &type_list, &PyList_Type, &arranged, &kl))
        return NULL;
    if (PyList_Size(mine_list) != PyList_Size(golden_list)) {
        PyErr_SetString(PyExc_ValueError, "every file of mine needs one of the golden");
        return NULL;
    }
    if (read_types(type_list, arranged, &types) != 0 || take_items(mine_list, &mine) != 0)
        return NULL;
    if (take_items(golden_list, &golden) != 0) {
        release_items(&mine);
        return NULL;
    }
    struct ds_file_pairs pairs;
    ds_file_pairs_init(&pairs, types.type);
    pairs.arranged = types.arranged;
    pairs.arranged_count = types.arranged_count;
    pairs.divergence = kl != 0;
    PyObject *result = rows_of(&pairs, &mine, &golden);
    ds_file_pairs_free(&pairs);
    release_items(&mine);
    release_items(&golden);
    return result;
}

/* Segments */

static int count_items(const struct items *files, uint32_t (*counts)[DS_DUMP_DATA]) {
    struct reading *reading = begin_reading();
    for (Py_ssize_t i = 0; reading && i < files->count; i++) {
        size_t length;
        const uint8_t *data = read_item(&files->item[i], reading, &length);
        if (data)
            ds_count_segments(data, length, counts[i]);
    }
    int failed = reading ? 0 : -1;
    end_reading(reading);
    return failed;
}

PyObject *count_segments(PyObject *Py_UNUSED(module), PyObject *list) {
    struct items files;
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "files must be a list");
    if (take_items(list, &files) != 0)
        return NULL;
    uint32_t (*counts)[DS_DUMP_DATA] = calloc((size_t)files.count + 1, sizeof *counts);
    int failed = !counts;
    Py_BEGIN_ALLOW_THREADS;
    if (!failed)
        failed = count_items(&files, counts);
    Py_END_ALLOW_THREADS;
    PyObject *result = failed ? PyErr_NoMemory() : bytes_of(counts, (size_t)files.count, sizeof *counts);
    free(counts);
    release_items(&files);
    return result;
}
