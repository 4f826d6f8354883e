/* Comparison: how two tensors differ. */
#include "module.h"

#include <string.h>

#include "dumpstream/comparison.h"

/* For fewer bytes, releasing the GIL costs more than it gains. */
#define UNLOCKED_BYTES (16 << 10)
/* The elements of one type have from 1 to 52 digits; the smallest normal double has this exponent. */
#define MOST_DIGITS 52
#define LEAST_EXPONENT (-1022)

typedef struct {
    PyObject_HEAD struct ds_comparison comparison;
    bool extremes;
    bool busy;
} Comparison;

static PyTypeObject *summary_type;

int read_side(PyObject *tuple, struct ds_side *side) {
    const char *name;
    PyObject *table;
    int is_integer;
    memset(side, 0, sizeof *side);
    if (!PyArg_ParseTuple(tuple, "sOpii;a side is (kind, table, is_integer, digits, exponent)", &name, &table,
                          &is_integer, &side->digits, &side->exponent) ||
        find_kind(name, table, &side->kind) != 0)
        return -1;
    side->is_integer = is_integer != 0;
    if (side->digits < 0 || side->digits > MOST_DIGITS || side->exponent < LEAST_EXPONENT ||
        side->exponent > 0) {
        PyErr_Format(PyExc_ValueError, "digits must be 0 to %d and exponent %d to 0", MOST_DIGITS,
                     LEAST_EXPONENT);
        return -1;
    }
    if (table == Py_None)
        return 0;
    return read_table(table, ds_kind_table_size(side->kind), side->kind == DS_BYTE, side->table);
}

static PyObject *comparison_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"mine", "golden", "kl", NULL};
    PyObject *mine, *golden;
    struct ds_side sides[2];
    int extremes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|$p", keywords, &PyTuple_Type, &mine, &PyTuple_Type,
                                     &golden, &extremes) ||
        read_side(mine, &sides[0]) != 0 || read_side(golden, &sides[1]) != 0)
        return NULL;
    Comparison *self = (Comparison *)PyType_GenericAlloc(type, 0);
    if (self) {
        self->extremes = extremes != 0;
        ds_comparison_init(&self->comparison, &sides[0], &sides[1], self->extremes);
    }
    return (PyObject *)self;
}

/* Sets an error and returns false while another thread is inside `update`. */
static bool comparison_usable(Comparison *self) {
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread updates this comparison; use one at a time");
    return !self->busy;
}

static PyObject *take_views(Comparison *self, const Py_buffer *mine, const Py_buffer *golden,
                            Py_ssize_t count) {
    const struct ds_comparison *comparison = &self->comparison;
    size_t most = ds_kind_elements(comparison->mine.kind, (size_t)mine->len);
    size_t other = ds_kind_elements(comparison->golden.kind, (size_t)golden->len);
    most = most < other ? most : other;
    if (count < 0 || (size_t)count > most)
        return PyErr_Format(PyExc_ValueError, "the bytes have %zu elements, not %zd", most, count);
    self->busy = true;
    PyThreadState *thread = mine->len + golden->len < UNLOCKED_BYTES ? NULL : PyEval_SaveThread();
    ds_comparison_update(&self->comparison, mine->buf, golden->buf, (size_t)count);
    if (thread)
        PyEval_RestoreThread(thread);
    self->busy = false;
    Py_RETURN_NONE;
}

static PyObject *comparison_update(Comparison *self, PyObject *args) {
    Py_buffer mine, golden;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "y*y*n", &mine, &golden, &count))
        return NULL;
    PyObject *result = comparison_usable(self) ? take_views(self, &mine, &golden, count) : NULL;
    PyBuffer_Release(&mine);
    PyBuffer_Release(&golden);
    return result;
}

static PyObject *comparison_again(Comparison *self, PyObject *Py_UNUSED(ignored)) {
    if (!comparison_usable(self))
        return NULL;
    if (!self->extremes || self->comparison.divergence) {
        PyErr_SetString(PyExc_ValueError, "a second pass follows the first of a comparison with kl=True");
        return NULL;
    }
    ds_comparison_again(&self->comparison);
    Py_RETURN_NONE;
}

static PyStructSequence_Field summary_fields[] = {
    {"count", NULL},        {"finite", NULL},       {"nan_both", NULL},    {"nan_mine", NULL},
    {"nan_golden", NULL},   {"inf_differs", NULL},  {"bit_equal", NULL},   {"beyond_1", NULL},
    {"beyond_5", NULL},     {"xx", NULL},           {"yy", NULL},          {"xy", NULL},
    {"errors", NULL},       {"squares", NULL},      {"rmse", NULL},        {"relative", NULL},
    {"max_relative", NULL}, {"mean", NULL},         {"golden_mean", NULL}, {"std", NULL},
    {"golden_std", NULL},   {"max_error", NULL},    {"max_ulp", NULL},     {"worst", NULL},
    {"worst_mine", NULL},   {"worst_golden", NULL}, {"kl", NULL},          {NULL, NULL}};
static PyStructSequence_Desc summary_desc = {"dumpstream._native.ComparisonSummary", NULL, summary_fields,
                                             sizeof summary_fields / sizeof *summary_fields - 1};

static PyObject *number(bool exists, double value) {
    return exists ? PyFloat_FromDouble(value) : Py_NewRef(Py_None);
}

static PyObject *summary_object(const struct ds_comparison_summary *it) {
    PyObject *object = PyStructSequence_New(summary_type);
    if (!object)
        return NULL;
    const uint64_t counts[] = {it->count,       it->finite,    it->nan_both, it->nan_mine, it->nan_golden,
                               it->inf_differs, it->bit_equal, it->beyond_1, it->beyond_5};
    const double sums[] = {it->xx,       it->yy,           it->xy,     it->errors, it->squares, it->rmse,
                           it->relative, it->max_relative, it->x_mean, it->y_mean, it->x_std,   it->y_std};
    bool found = it->worst != DS_NO_ELEMENT, exact = it->is_integer;
    Py_ssize_t field = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        PyStructSequence_SetItem(object, field++, PyLong_FromUnsignedLongLong(counts[i]));
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        PyStructSequence_SetItem(object, field++, PyFloat_FromDouble(sums[i]));
    PyObject *values[] = {
        exact ? exact_integer((__int128)it->exact_max) : PyFloat_FromDouble(it->max_error),
        number(it->has_ulp, it->max_ulp),
        found ? PyLong_FromUnsignedLongLong(it->worst) : Py_NewRef(Py_None),
        found && exact ? exact_integer(it->exact_x) : number(found, it->worst_x),
        found && exact ? exact_integer(it->exact_y) : number(found, it->worst_y),
        number(it->has_divergence, it->divergence),
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        PyStructSequence_SetItem(object, field++, values[i]);
    if (PyErr_Occurred())
        Py_CLEAR(object);
    return object;
}

static PyObject *comparison_result(Comparison *self, PyObject *Py_UNUSED(ignored)) {
    struct ds_comparison_summary summary;
    if (!comparison_usable(self))
        return NULL;
    ds_comparison_result(&self->comparison, &summary);
    return summary_object(&summary);
}

static PyMethodDef comparison_methods[] = {{"update", (PyCFunction)comparison_update, METH_VARARGS, NULL},
                                           {"again", (PyCFunction)comparison_again, METH_NOARGS, NULL},
                                           {"result", (PyCFunction)comparison_result, METH_NOARGS, NULL},
                                           {0}};
static PyType_Slot comparison_slots[] = {{Py_tp_new, (void *)comparison_new},
                                         {Py_tp_dealloc, (void *)free_object},
                                         {Py_tp_methods, comparison_methods},
                                         {0, NULL}};
static PyType_Spec comparison_spec = {"dumpstream._native.Comparison", sizeof(Comparison), 0,
                                      Py_TPFLAGS_DEFAULT, comparison_slots};

int add_comparison(PyObject *module) {
    summary_type = PyStructSequence_NewType(&summary_desc);
    if (!summary_type || PyModule_AddType(module, summary_type) != 0)
        return -1;
    return add_type(module, &comparison_spec) ? 0 : -1;
}
