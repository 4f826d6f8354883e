#include "small_device.h"

#define MAGIC 0x5a5a5a5au

enum { PREAMBLE = 8, BLOCK_HEAD = 8, ENTRY_HEAD = 8, DIM = 8, BLOCK_INPUTS = 4, BLOCK_OUTPUTS = 5 };

/* The bytes of a tensor before its list of shapes and names. */
enum { INPUT_BYTES = 40, OUTPUT_BYTES = 52 };

enum { LIST_SHAPE, LIST_ORIGINAL_SHAPE, LIST_ORIGINAL_NAME };

/* Numbers of data types that this table does not have come behind those of DumpData. */
enum { UNKNOWN_TYPES = 10000 };

/* The graph engine's numbers of data types as those of DumpData; 0 if there is no such type. */
static const uint8_t data_types[] = {
    1,  2,  3,  7,  4,  0,  5,  6, 9,  8,  10, 12, 11, 13, 14, 15, 16, 17, 18, 19, 20,
    21, 22, 23, 24, 25, 26, 27, 0, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
};

enum { TYPE_UNDEFINED = 28 };

static int32_t data_type_of(uint32_t number) {
    if (number < sizeof data_types && data_types[number])
        return data_types[number];
    if (number == TYPE_UNDEFINED)
        return 0;
    return number < INT32_MAX - UNKNOWN_TYPES ? (int32_t)number + UNKNOWN_TYPES : INT32_MAX;
}

static uint64_t little_endian(const uint8_t *bytes, unsigned count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static uint32_t u32(const uint8_t *bytes) {
    return (uint32_t)little_endian(bytes, 4);
}

static uint64_t u64(const uint8_t *bytes) {
    return little_endian(bytes, 8);
}

/* Bytes that are not read yet. */
static bool has(const uint8_t *at, const uint8_t *end, uint64_t count) {
    return (uint64_t)(end - at) >= count;
}

bool is_small(const uint8_t *bytes, size_t length) {
    return length >= 4 && u32(bytes) == MAGIC;
}

void small_begin(struct ds_dump_data *message) {
    if (!has(message->at, message->end, PREAMBLE))
        fail(message, message->at, "the header of a small device ends too early");
    else if (u32(message->at + 4) != 0)
        fail(message, message->at + 4, "the header of a small device has a version that is not known");
    else
        message->at += PREAMBLE;
    message->block_end = message->at;
}

static bool read_dims(struct ds_dump_data *message, const uint8_t *at, uint32_t bytes, struct ds_dims *dims) {
    if (bytes % DIM)
        return fail(message, at, "a shape has a length that is not a multiple of 8");
    dims->count = 0;
    for (const uint8_t *end = at + bytes; at < end; at += DIM)
        if (!add_dim(message, at, dims, u64(at)))
            return false;
    return true;
}

/* Shapes, and the name of an output before the graph was optimised. Others are skipped. */
static bool read_list(struct ds_dump_data *message, const uint8_t *at, const uint8_t *end,
                      struct ds_segment *segment) {
    while (at < end) {
        const uint8_t *value = at + ENTRY_HEAD;
        if (!has(at, end, ENTRY_HEAD) || !has(value, end, u32(at + 4)))
            return fail(message, at, "a list of a tensor ends too early");
        uint32_t tag = u32(at), bytes = u32(at + 4);
        if (tag == LIST_SHAPE && !read_dims(message, value, bytes, &segment->shape))
            return false;
        if (tag == LIST_ORIGINAL_SHAPE && !read_dims(message, value, bytes, &segment->original_shape))
            return false;
        if (tag == LIST_ORIGINAL_NAME && segment->original_op.present)
            segment->original_op.name = (struct ds_span){value, bytes};
        at = value + bytes;
    }
    return true;
}

/* The format has the groups of a fractal format in its upper bytes. */
static void read_format(const uint8_t *at, struct ds_segment *segment) {
    segment->format = (int32_t)(u32(at) & 0xff);
    segment->sub_format = (int32_t)(u32(at) >> 8 & 0xffff);
}

static bool read_tensor(struct ds_dump_data *message, struct ds_segment *segment) {
    const bool is_output = message->block == DS_OUTPUT;
    const uint8_t *start = message->at, *end = message->block_end;
    const uint32_t fixed = is_output ? OUTPUT_BYTES : INPUT_BYTES;
    *segment = (struct ds_segment){.kind = message->block};
    if (!has(start, end, fixed))
        return fail(message, start, "a block has fewer tensors than it says");
    segment->data_type = data_type_of(u32(start));
    read_format(start + 4, segment);
    if (is_output) { /* after the kind of address */
        segment->original_op.present = true;
        segment->original_op.name.at = start + fixed;
        segment->original_op.output_index = u32(start + 12);
        segment->original_op.data_type = (int32_t)u32(start + 16);
        segment->original_op.format = (int32_t)u32(start + 20);
    }
    const uint8_t *numbers = start + fixed - 28;
    segment->address = u64(numbers);
    segment->offset = u64(numbers + 8);
    segment->size = u64(numbers + 16);
    uint32_t list = u32(numbers + 24);
    if (!has(start + fixed, end, list))
        return fail(message, start, "the list of a tensor reaches beyond its block");
    message->at = start + fixed + list;
    segment->message = (struct ds_span){start, 0};
    return read_list(message, start + fixed, message->at, segment);
}

/* Goes to the next block that has tensors; false at the end, or with a fault. */
static bool enter_block(struct ds_dump_data *message) {
    while (message->left == 0) {
        const uint8_t *at = message->at = message->block_end, *end = message->end;
        if (at == end)
            return false;
        if (!has(at, end, BLOCK_HEAD) || !has(at + BLOCK_HEAD, end, u32(at + 4)))
            return fail(message, at, "a block reaches beyond the end of the header");
        uint32_t tag = u32(at), bytes = u32(at + 4);
        message->at = at + BLOCK_HEAD;
        message->block_end = message->at + bytes;
        if (tag != BLOCK_INPUTS && tag != BLOCK_OUTPUTS)
            continue;
        if (bytes < 4)
            return fail(message, at, "a block has no count of tensors");
        message->block = tag == BLOCK_INPUTS ? DS_INPUT : DS_OUTPUT;
        message->left = u32(message->at);
        message->at += 4;
    }
    return true;
}

bool small_next(struct ds_dump_data *message, struct ds_entry *entry) {
    if (!enter_block(message))
        return false;
    message->left--;
    entry->kind = message->block == DS_INPUT ? DS_ENTRY_INPUT : DS_ENTRY_OUTPUT;
    return count_entry(message, message->at) && read_tensor(message, &entry->segment);
}
