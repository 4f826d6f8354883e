/* parse_header: a dump file's message as tuples. */
#include "module.h"

#include "dumpstream/header.h"

static PyObject *dims_tuple(const struct ds_dims *dims) {
    PyObject *tuple = PyTuple_New(dims->count);
    for (uint32_t i = 0; tuple && i < dims->count; i++) {
        PyObject *dim = PyLong_FromUnsignedLongLong(dims->dim[i]);
        if (!dim || PyTuple_SetItem(tuple, i, dim) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *ranges_tuple(const struct ds_segment *segment) {
    uint32_t count = segment->range_start.count;
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *range = Py_BuildValue("(KK)", (unsigned long long)segment->range_start.dim[i],
                                        (unsigned long long)segment->range_end.dim[i]);
        if (!range || PyTuple_SetItem(tuple, i, range) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *text_of(struct ds_span span) {
    return decode_name((const char *)span.at, (Py_ssize_t)span.length);
}

static PyObject *unknown_of(enum ds_message_kind kind, struct ds_span message, bool any) {
    size_t length = any ? ds_unknown_fields(kind, message, NULL) : 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (bytes && length)
        ds_unknown_fields(kind, message, (uint8_t *)PyBytes_AsString(bytes));
    return bytes;
}

static PyObject *original_op_of(const struct ds_segment *segment) {
    if (!segment->original_op.present)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(NIii)", text_of(segment->original_op.name), segment->original_op.output_index,
                         segment->original_op.data_type, segment->original_op.format);
}

static PyObject *segment_tuple(const struct ds_dump_data *message, const struct ds_segment *segment) {
    size_t start = segment->data.at ? (size_t)(segment->data.at - message->begin) : 0;
    return Py_BuildValue(
        "(iiNNiKKKIIiNNnnN)", segment->data_type, segment->format, dims_tuple(&segment->shape),
        dims_tuple(&segment->original_shape), segment->sub_format, (unsigned long long)segment->size,
        (unsigned long long)segment->address, (unsigned long long)segment->offset, segment->arg_index,
        segment->input_type, segment->type, ranges_tuple(segment), original_op_of(segment), (Py_ssize_t)start,
        (Py_ssize_t)(start + segment->data.length),
        unknown_of(segment->kind, segment->message, segment->any_unknown));
}

/* What `parse_header` returns, while it is put together. */
struct parsed {
    unsigned long long time;
    bool any_unknown;
    struct ds_span text[DS_ENTRY_ATTRIBUTE]; /* by kind of entry */
    PyObject *attributes;
    PyObject *segments[DS_DUMP_DATA];
};

static int parsed_add(struct parsed *parsed, const struct ds_dump_data *message,
                      const struct ds_entry *entry) {
    switch (entry->kind) {
    case DS_ENTRY_UNKNOWN:
        parsed->any_unknown = true;
        return 0;
    case DS_ENTRY_TIME:
        parsed->time = entry->time;
        return 0;
    case DS_ENTRY_VERSION:
    case DS_ENTRY_OP_NAME:
    case DS_ENTRY_DFX_MESSAGE:
        parsed->text[entry->kind] = entry->text;
        return 0;
    case DS_ENTRY_ATTRIBUTE:
        return append_new(parsed->attributes,
                          Py_BuildValue("(NN)", text_of(entry->text), text_of(entry->value)));
    default:
        return append_new(parsed->segments[entry->segment.kind], segment_tuple(message, &entry->segment));
    }
}

static int parsed_fill(struct parsed *parsed, struct ds_dump_data *message) {
    struct ds_entry entry;
    int error = (parsed->attributes = PyList_New(0)) ? 0 : -1;
    for (int i = 0; i < DS_DUMP_DATA && !error; i++)
        error = (parsed->segments[i] = PyList_New(0)) ? 0 : -1;
    while (!error && ds_dump_data_next(message, &entry))
        error = parsed_add(parsed, message, &entry);
    return error;
}

static PyObject *raise_fault(const struct ds_dump_data *message) {
    PyObject *args = Py_BuildValue("(sn)", message->fault, (Py_ssize_t)message->fault_position);
    if (args)
        PyErr_SetObject(PyExc_ValueError, args);
    Py_XDECREF(args);
    return NULL;
}

PyObject *parse_header(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    struct ds_dump_data message;
    struct parsed parsed = {0};
    PyObject *result = NULL;
    ds_dump_data_begin(&message, view.buf, (size_t)view.len);
    int error = parsed_fill(&parsed, &message);
    if (message.fault)
        raise_fault(&message);
    else if (!error)
        result = Py_BuildValue(
            "(NKNNOOOOON)", text_of(parsed.text[DS_ENTRY_VERSION]), parsed.time,
            text_of(parsed.text[DS_ENTRY_OP_NAME]), text_of(parsed.text[DS_ENTRY_DFX_MESSAGE]),
            parsed.attributes, parsed.segments[DS_INPUT], parsed.segments[DS_OUTPUT],
            parsed.segments[DS_BUFFER], parsed.segments[DS_SPACE],
            unknown_of(DS_DUMP_DATA, (struct ds_span){message.begin, (size_t)view.len}, parsed.any_unknown));
    Py_XDECREF(parsed.attributes);
    for (int i = 0; i < DS_DUMP_DATA; i++)
        Py_XDECREF(parsed.segments[i]);
    PyBuffer_Release(&view);
    return result;
}
