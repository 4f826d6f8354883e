/* Statistics: the statistics of one tensor. */
#include "module.h"

#include <stdio.h>
#include <string.h>

#include "dumpstream/codec.h"
#include "dumpstream/statistics.h"

#define CACHED_BYTES (128 << 10)
/* For fewer bytes, releasing the GIL costs more than it gains. */
#define UNLOCKED_BYTES (16 << 10)

typedef struct {
    PyObject_HEAD struct ds_statistics statistics;
    bool busy;
} Statistics;

static PyTypeObject *summary_type;

int read_table(PyObject *table, size_t size, bool repeated, double *values) {
    Py_buffer view;
    if (PyObject_GetBuffer(table, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) != 0)
        return -1;
    size_t given = (size_t)view.len / sizeof *values;
    bool fits = given == size || (repeated && given > 0 && given < size && (given & (given - 1)) == 0);
    fits = fits && view.format && strcmp(view.format, "d") == 0;
    for (size_t code = 0; fits && code < size; code++)
        values[code] = ((const double *)view.buf)[code % given];
    PyBuffer_Release(&view);
    if (!fits)
        PyErr_Format(PyExc_ValueError, "the table must be a buffer of %zu doubles", size);
    return fits ? 0 : -1;
}

static void raise_no_kind(const char *name) {
    char known[128] = "";
    for (int kind = 0; kind < DS_KINDS; kind++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s",
                 ds_kind_name((enum ds_kind)kind));
    PyErr_Format(PyExc_ValueError, "no kind %s; there are:%s", name, known);
}

int find_kind(const char *name, PyObject *table, enum ds_kind *kind) {
    if (!ds_kind_find(name, kind))
        raise_no_kind(name);
    else if (ds_kind_table_size(*kind) > 0 && table == Py_None)
        PyErr_Format(PyExc_ValueError, "kind %s needs a table", name);
    else if (ds_kind_table_size(*kind) == 0 && table != Py_None)
        PyErr_Format(PyExc_ValueError, "kind %s takes no table", name);
    else
        return 0;
    return -1;
}

static PyObject *statistics_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"kind", "table", "min_normal", "elements", "histogram", NULL};
    const char *name;
    PyObject *table = Py_None, *elements = Py_None;
    double values[256], min_normal = 0;
    int histogram = 0;
    enum ds_kind kind;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|$OdOp", keywords, &name, &table, &min_normal, &elements,
                                     &histogram) ||
        find_kind(name, table, &kind) != 0)
        return NULL;
    if (table == Py_None && min_normal != 0)
        return PyErr_Format(PyExc_ValueError, "kind %s takes no min_normal", name);
    if (table != Py_None && read_table(table, ds_kind_table_size(kind), kind == DS_BYTE, values) != 0)
        return NULL;
    uint64_t limit = elements == Py_None ? DS_UNLIMITED : PyLong_AsUnsignedLongLong(elements);
    if (limit == DS_UNLIMITED && PyErr_Occurred())
        return NULL;
    Statistics *self = (Statistics *)PyType_GenericAlloc(type, 0);
    if (self)
        ds_statistics_init(&self->statistics, kind, table != Py_None ? values : NULL, min_normal, limit,
                           histogram != 0);
    return (PyObject *)self;
}

/* Sets an error and returns false while another thread is inside `update`. */
static bool statistics_usable(Statistics *self) {
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread updates these statistics; use one at a time");
    return !self->busy;
}

static PyObject *statistics_update(Statistics *self, PyObject *data) {
    Py_buffer view;
    if (!statistics_usable(self) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    self->busy = true;
    PyThreadState *thread = view.len < UNLOCKED_BYTES ? NULL : PyEval_SaveThread();
    ds_statistics_update(&self->statistics, view.buf, (size_t)view.len);
    if (thread)
        PyEval_RestoreThread(thread);
    self->busy = false;
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyObject *exact_integer(__int128 value) {
    char text[40];
    unsigned __int128 magnitude = value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
    snprintf(text, sizeof text, "%s%llx%016llx", value < 0 ? "-" : "", (unsigned long long)(magnitude >> 64),
             (unsigned long long)magnitude);
    return PyLong_FromString(text, NULL, 16);
}

/* An integer if the kind is an integer; None without elements. */
static PyObject *extreme(const struct ds_summary *summary, uint64_t count, __int128 exact, double value) {
    if (count == 0)
        return Py_NewRef(Py_None);
    return summary->is_integer ? exact_integer(exact) : PyFloat_FromDouble(value);
}

static PyObject *average(uint64_t count, double value) {
    return count ? PyFloat_FromDouble(value) : Py_NewRef(Py_None);
}

static PyObject *histogram_list(const struct ds_summary *summary, const uint64_t histogram[256]) {
    if (!summary->has_histogram)
        return Py_NewRef(Py_None);
    PyObject *list = PyList_New(256);
    for (Py_ssize_t bin = 0; list && bin < 256; bin++) {
        PyObject *count = PyLong_FromUnsignedLongLong(histogram[bin]);
        if (!count || PyList_SetItem(list, bin, count) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyStructSequence_Field summary_fields[] = {
    {"count", NULL},      {"nan", NULL},         {"pos_inf", NULL},   {"neg_inf", NULL}, {"zero", NULL},
    {"negative", NULL},   {"subnormal", NULL},   {"saturated", NULL}, {"max", NULL},     {"min", NULL},
    {"sum", NULL},        {"mean", NULL},        {"l2norm", NULL},    {"std", NULL},     {"finite_max", NULL},
    {"finite_min", NULL}, {"finite_mean", NULL}, {"histogram", NULL}, {NULL, NULL}};
static PyStructSequence_Desc summary_desc = {"dumpstream._native.Summary", NULL, summary_fields, 18};

static PyObject *summary_object(const struct ds_summary *it, const uint64_t histogram[256]) {
    const uint64_t counts[] = {it->count, it->nan,      it->pos_inf,  it->neg_inf,
                               it->zero,  it->negative, it->subnormal};
    PyObject *object = PyStructSequence_New(summary_type);
    if (!object)
        return NULL;
    Py_ssize_t field = 0;
    for (; field < 7; field++)
        PyStructSequence_SetItem(object, field, PyLong_FromUnsignedLongLong(counts[field]));
    PyObject *values[] = {
        it->has_saturated ? PyLong_FromUnsignedLongLong(it->saturated) : Py_NewRef(Py_None),
        extreme(it, it->count, it->exact_max, it->max),
        extreme(it, it->count, it->exact_min, it->min),
        it->is_integer ? exact_integer(it->exact_sum) : PyFloat_FromDouble(it->sum),
        average(it->count, it->mean),
        PyFloat_FromDouble(it->l2norm),
        average(it->count, it->std),
        extreme(it, it->finite, it->exact_max, it->finite_max),
        extreme(it, it->finite, it->exact_min, it->finite_min),
        average(it->finite, it->finite_mean),
        histogram_list(it, histogram),
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        PyStructSequence_SetItem(object, field++, values[i]);
    if (PyErr_Occurred())
        Py_CLEAR(object);
    return object;
}

static PyObject *statistics_result(Statistics *self, PyObject *Py_UNUSED(ignored)) {
    struct ds_summary summary;
    uint64_t histogram[256];
    if (!statistics_usable(self))
        return NULL;
    ds_statistics_result(&self->statistics, &summary, histogram);
    return summary_object(&summary, histogram);
}

PyObject *use_kernels(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    const char *used = ds_kernels_use(name);
    if (!used)
        return PyErr_Format(PyExc_ValueError, "this machine has no kernels %s; \"auto\" takes the fastest",
                            name);
    /* A machine may have the instructions that statistics need, and not those of the codec. */
    if (!ds_codec_use(name))
        ds_codec_use("auto");
    return PyUnicode_FromString(used);
}

static PyMethodDef statistics_methods[] = {{"update", (PyCFunction)statistics_update, METH_O, NULL},
                                           {"result", (PyCFunction)statistics_result, METH_NOARGS, NULL},
                                           {0}};
static PyType_Slot statistics_slots[] = {{Py_tp_new, (void *)statistics_new},
                                         {Py_tp_dealloc, (void *)free_object},
                                         {Py_tp_methods, statistics_methods},
                                         {0, NULL}};
static PyType_Spec statistics_spec = {"dumpstream._native.Statistics", sizeof(Statistics), 0,
                                      Py_TPFLAGS_DEFAULT, statistics_slots};

int add_statistics(PyObject *module) {
    summary_type = PyStructSequence_NewType(&summary_desc);
    if (!summary_type || PyModule_AddType(module, summary_type) != 0 ||
        PyModule_AddIntConstant(module, "CACHED_BYTES", CACHED_BYTES) != 0)
        return -1;
    return add_type(module, &statistics_spec) ? 0 : -1;
}
