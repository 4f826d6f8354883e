#include <string.h>

#include "dumpstream/header.h"
#include "small_device.h"
#include "wire.h"

/* The fields of a segment. Each kind of message has its own numbers for them. */
enum slot {
    SLOT_UNKNOWN,
    SLOT_TYPE,
    SLOT_DATA_TYPE,
    SLOT_FORMAT,
    SLOT_SUB_FORMAT,
    SLOT_ARG_INDEX,
    SLOT_INPUT_TYPE,
    SLOT_SIZE,
    SLOT_ADDRESS,
    SLOT_OFFSET,
    SLOT_SHAPE, /* from here on WIRE_BYTES; WIRE_VARINT above */
    SLOT_ORIGINAL_SHAPE,
    SLOT_DIM_RANGE,
    SLOT_ORIGINAL_OP,
    SLOT_DATA,
};

#define MAX_NUMBER 12

static const uint8_t slots[][MAX_NUMBER + 1] = {
    [DS_INPUT] = {0, SLOT_DATA_TYPE, SLOT_FORMAT, SLOT_SHAPE, SLOT_DATA, SLOT_SIZE, SLOT_ORIGINAL_SHAPE,
                  SLOT_SUB_FORMAT, SLOT_ADDRESS, SLOT_OFFSET, SLOT_ARG_INDEX, SLOT_INPUT_TYPE},
    [DS_OUTPUT] = {0, SLOT_DATA_TYPE, SLOT_FORMAT, SLOT_SHAPE, SLOT_ORIGINAL_OP, SLOT_DATA, SLOT_SIZE,
                   SLOT_ORIGINAL_SHAPE, SLOT_SUB_FORMAT, SLOT_ADDRESS, SLOT_DIM_RANGE, SLOT_OFFSET,
                   SLOT_ARG_INDEX},
    [DS_BUFFER] = {0, SLOT_TYPE, SLOT_DATA, SLOT_SIZE},
    [DS_SPACE] = {0, SLOT_TYPE, SLOT_DATA, SLOT_SIZE, SLOT_ARG_INDEX},
};

static const uint8_t entries[] = {
    [1] = DS_ENTRY_VERSION,   [2] = DS_ENTRY_TIME,   [3] = DS_ENTRY_OUTPUT,
    [4] = DS_ENTRY_INPUT,     [5] = DS_ENTRY_BUFFER, [6] = DS_ENTRY_OP_NAME,
    [7] = DS_ENTRY_ATTRIBUTE, [8] = DS_ENTRY_SPACE,  [9] = DS_ENTRY_DFX_MESSAGE,
};

static enum slot slot_of(enum ds_message_kind kind, const struct field *field) {
    enum slot slot = field->number <= MAX_NUMBER ? slots[kind][field->number] : SLOT_UNKNOWN;
    return field->wire == (slot < SLOT_SHAPE ? WIRE_VARINT : WIRE_BYTES) ? slot : SLOT_UNKNOWN;
}

static enum ds_entry_kind entry_of(const struct field *field) {
    enum ds_entry_kind kind = field->number < sizeof entries ? entries[field->number] : DS_ENTRY_UNKNOWN;
    return field->wire == (kind == DS_ENTRY_TIME ? WIRE_VARINT : WIRE_BYTES) ? kind : DS_ENTRY_UNKNOWN;
}

static bool check(struct ds_dump_data *message, const struct cursor *in, const uint8_t *start) {
    if (in->cut)
        return fail(message, start, "a field reaches beyond the end of its message");
    return !in->bad || fail(message, start, "a field is malformed");
}

/* Reads one field; false at the end, or with a fault. */
static bool take(struct ds_dump_data *message, struct cursor *in, struct field *field) {
    const uint8_t *start = in->at;
    if (next_field(in, field))
        return true;
    check(message, in, start);
    return false;
}

static struct ds_span span_of(const struct field *field) {
    return (struct ds_span){field->bytes, (size_t)field->value};
}

/* Shape: 1 dim, packed or not. */
static bool read_shape(struct ds_dump_data *message, const struct field *shape, struct ds_dims *dims) {
    struct cursor in = inside(shape);
    struct field field = {0};
    while (take(message, &in, &field)) {
        if (field.number != 1)
            continue;
        if (field.wire == WIRE_VARINT && !add_dim(message, in.at, dims, field.value))
            return false;
        struct cursor packed = field.wire == WIRE_BYTES ? inside(&field) : (struct cursor){0};
        while (packed.at != packed.end) {
            const uint8_t *start = packed.at;
            uint64_t dim = read_varint(&packed);
            if (!check(message, &packed, start) || !add_dim(message, start, dims, dim))
                return false;
        }
    }
    return !message->fault;
}

/* DimRange: 1 dim_start, 2 dim_end. */
static bool read_range(struct ds_dump_data *message, const struct field *range, struct ds_segment *segment) {
    struct cursor in = inside(range);
    struct field field = {0};
    uint64_t bound[2] = {0};
    while (take(message, &in, &field)) {
        if (field.wire == WIRE_VARINT && (field.number == 1 || field.number == 2))
            bound[field.number - 1] = field.value;
    }
    return !message->fault && add_dim(message, range->bytes, &segment->range_start, bound[0]) &&
           add_dim(message, range->bytes, &segment->range_end, bound[1]);
}

/* OriginalOp: 1 name, 2 output_index, 3 data_type, 4 format. */
static bool read_original_op(struct ds_dump_data *message, const struct field *op,
                             struct ds_segment *segment) {
    struct cursor in = inside(op);
    struct field field = {0};
    segment->original_op.present = true;
    while (take(message, &in, &field)) {
        if (field.number == 1 && field.wire == WIRE_BYTES)
            segment->original_op.name = span_of(&field);
        else if (field.wire != WIRE_VARINT)
            continue;
        else if (field.number == 2)
            segment->original_op.output_index = (uint32_t)field.value;
        else if (field.number == 3)
            segment->original_op.data_type = (int32_t)field.value;
        else if (field.number == 4)
            segment->original_op.format = (int32_t)field.value;
    }
    return !message->fault;
}

#define NUMBER(slot, member)                                                                                 \
    case slot:                                                                                               \
        segment->member = (__typeof__(segment->member))field->value;                                         \
        return true;

static bool read_slot(struct ds_dump_data *message, enum slot slot, const struct field *field,
                      struct ds_segment *segment) {
    switch (slot) {
    case SLOT_UNKNOWN:
        segment->any_unknown = true;
        return true;
        NUMBER(SLOT_TYPE, type)
        NUMBER(SLOT_DATA_TYPE, data_type)
        NUMBER(SLOT_FORMAT, format)
        NUMBER(SLOT_SUB_FORMAT, sub_format)
        NUMBER(SLOT_ARG_INDEX, arg_index)
        NUMBER(SLOT_INPUT_TYPE, input_type)
        NUMBER(SLOT_SIZE, size)
        NUMBER(SLOT_ADDRESS, address)
        NUMBER(SLOT_OFFSET, offset)
    case SLOT_DATA:
        segment->data = span_of(field);
        return true;
    case SLOT_SHAPE:
        return read_shape(message, field, &segment->shape);
    case SLOT_ORIGINAL_SHAPE:
        return read_shape(message, field, &segment->original_shape);
    case SLOT_DIM_RANGE:
        return read_range(message, field, segment);
    case SLOT_ORIGINAL_OP:
        return read_original_op(message, field, segment);
    }
    return true;
}

static bool read_whole_segment(struct ds_dump_data *message, enum ds_message_kind kind,
                               const struct field *whole, struct ds_segment *segment) {
    struct cursor in = inside(whole);
    struct field field = {0};
    *segment = (struct ds_segment){.kind = kind, .message = span_of(whole)};
    while (take(message, &in, &field)) {
        if (!read_slot(message, slot_of(kind, &field), &field, segment))
            return false;
    }
    return !message->fault;
}

/* OpAttr: 1 name, 2 value. */
static bool read_attribute(struct ds_dump_data *message, const struct field *attribute,
                           struct ds_entry *entry) {
    struct cursor in = inside(attribute);
    struct field field = {0};
    entry->text = entry->value = (struct ds_span){in.at, 0};
    while (take(message, &in, &field)) {
        if (field.wire == WIRE_BYTES && field.number == 1)
            entry->text = span_of(&field);
        else if (field.wire == WIRE_BYTES && field.number == 2)
            entry->value = span_of(&field);
    }
    return !message->fault;
}

void ds_dump_data_begin(struct ds_dump_data *message, const uint8_t *bytes, size_t length) {
    *message = (struct ds_dump_data){.begin = bytes, .at = bytes, .end = bytes + length};
    message->small = is_small(bytes, length);
    if (message->small)
        small_begin(message);
}

bool ds_dump_data_next(struct ds_dump_data *message, struct ds_entry *entry) {
    struct cursor in = {.at = message->at, .end = message->end};
    struct field field = {0};
    if (message->fault)
        return false;
    if (message->small)
        return small_next(message, entry);
    if (!take(message, &in, &field))
        return false;
    const uint8_t *start = message->at;
    message->at = in.at;
    entry->kind = entry_of(&field);
    if (entry->kind >= DS_ENTRY_ATTRIBUTE && !count_entry(message, start))
        return false;
    if (entry->kind >= DS_ENTRY_INPUT)
        return read_whole_segment(message, DS_INPUT + (entry->kind - DS_ENTRY_INPUT), &field,
                                  &entry->segment);
    if (entry->kind == DS_ENTRY_ATTRIBUTE)
        return read_attribute(message, &field, entry);
    entry->time = field.value;
    entry->text = span_of(&field);
    return true;
}

size_t ds_unknown_fields(enum ds_message_kind kind, struct ds_span message, uint8_t *out) {
    struct cursor in = {.at = message.at, .end = message.at + message.length};
    struct field field = {0};
    size_t total = 0;
    for (const uint8_t *start = in.at; next_field(&in, &field); start = in.at) {
        if (kind == DS_DUMP_DATA ? entry_of(&field) != DS_ENTRY_UNKNOWN
                                 : slot_of(kind, &field) != SLOT_UNKNOWN)
            continue;
        size_t length = (size_t)(in.at - start);
        if (out)
            memcpy(out + total, start, length);
        total += length;
    }
    return total;
}
