#include "device/proto.h"

#include <string.h>

/* Field numbers of toolkit.dump. */
enum {
    DATA_VERSION = 1,
    DATA_TIME = 2,
    DATA_OP_NAME = 6,
    DATA_ATTRIBUTE = 7,
    DATA_DFX_MESSAGE = 9,

    TENSOR_DTYPE = 1,
    TENSOR_FORMAT = 2,
    TENSOR_SHAPE = 3,
    OUTPUT_ORIGINAL_OP = 4,
    INPUT_TYPE = 11,

    ORIGINAL_OP_NAME = 1,
    ORIGINAL_OP_OUTPUT_INDEX = 2,

    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_VALUE = 2,

    SHAPE_DIM = 1,

    FORMAT_ND = 2,
};

/* Those in which inputs, outputs and spaces differ; `data` is that of the part itself. */
static const struct {
    uint32_t data, size, original_shape, address, arg_index;
} numbers[] = {
    [PART_INPUT] = {.data = 4, .size = 5, .original_shape = 6, .address = 8, .arg_index = 10},
    [PART_OUTPUT] = {.data = 3, .size = 6, .original_shape = 7, .address = 9, .arg_index = 12},
    [PART_SPACE] = {.data = 8, .size = 3, .arg_index = 4},
};

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

static uint8_t *put_varint(uint8_t *out, uint64_t value) {
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

/* proto3 leaves out a field that has its default. */
static uint8_t *put_number(uint8_t *out, uint32_t field, uint64_t value) {
    if (value == 0)
        return out;
    return put_varint(put_varint(out, field << 3 | WIRE_VARINT), value);
}

static uint8_t *put_bytes(uint8_t *out, uint32_t field, const void *bytes, size_t length) {
    out = put_varint(put_varint(out, field << 3 | WIRE_BYTES), length);
    memcpy(out, bytes, length);
    return out + length;
}

static uint8_t *put_shape(uint8_t *out, uint32_t field, const struct tensor *tensor) {
    uint8_t packed[MAX_DIMS * 10], *packed_end = packed;
    uint8_t shape[sizeof packed + 4], *shape_end;
    for (uint32_t i = 0; i < tensor->dims; i++)
        packed_end = put_varint(packed_end, tensor->dim[i]);
    shape_end = put_bytes(shape, SHAPE_DIM, packed, (size_t)(packed_end - packed));
    return put_bytes(out, field, shape, (size_t)(shape_end - shape));
}

static uint8_t *put_original_op(uint8_t *out, const char *name, uint32_t index) {
    uint8_t message[MAX_OP_NAME + 16], *end = message;
    end = put_bytes(end, ORIGINAL_OP_NAME, name, strlen(name));
    end = put_number(end, ORIGINAL_OP_OUTPUT_INDEX, index);
    return put_bytes(out, OUTPUT_ORIGINAL_OP, message, (size_t)(end - message));
}

static uint8_t *put_tensor(uint8_t *out, const struct tensor *tensor, const char *original_op) {
    const enum part part = tensor->part;
    uint8_t message[TENSOR_MESSAGE_BYTES], *end = message;
    if (part != PART_SPACE) {
        end = put_number(end, TENSOR_DTYPE, tensor->untyped ? 0 : dtype_facts[tensor->dtype].number);
        end = put_number(end, TENSOR_FORMAT, FORMAT_ND);
        end = put_shape(end, TENSOR_SHAPE, tensor);
    }
    if (part == PART_OUTPUT)
        end = put_original_op(end, original_op, tensor->index);
    end = put_number(end, numbers[part].size, tensor->bytes);
    if (part != PART_SPACE) {
        end = put_shape(end, numbers[part].original_shape, tensor);
        end = put_number(end, numbers[part].address, tensor->address);
    }
    end = put_number(end, numbers[part].arg_index, tensor->arg_index);
    if (part == PART_INPUT)
        end = put_number(end, INPUT_TYPE, tensor->kind);
    return put_bytes(out, numbers[part].data, message, (size_t)(end - message));
}

static uint8_t *put_attribute(uint8_t *out, const char *name, const char *value) {
    uint8_t message[MAX_USER_TAG + 64], *end = message;
    end = put_bytes(end, ATTRIBUTE_NAME, name, strlen(name));
    end = put_bytes(end, ATTRIBUTE_VALUE, value, strlen(value));
    return put_bytes(out, DATA_ATTRIBUTE, message, (size_t)(end - message));
}

static uint8_t *put_part(uint8_t *out, const struct dump_data *data, enum part part) {
    for (uint32_t i = 0; i < data->tensors; i++)
        if (data->tensor[i].part == part)
            out = put_tensor(out, &data->tensor[i], data->original_op);
    return out;
}

size_t dump_data_write(const struct dump_data *data, uint8_t *out) {
    uint8_t *end = out;
    end = put_bytes(end, DATA_VERSION, "2.0", 3);
    end = put_number(end, DATA_TIME, data->time_us);
    end = put_part(end, data, PART_OUTPUT);
    end = put_part(end, data, PART_INPUT);
    end = put_bytes(end, DATA_OP_NAME, data->op_name, strlen(data->op_name));
    if (data->user_tag[0])
        end = put_attribute(end, "user_tag", data->user_tag);
    end = put_part(end, data, PART_SPACE);
    if (data->dfx_message[0])
        end = put_bytes(end, DATA_DFX_MESSAGE, data->dfx_message, strlen(data->dfx_message));
    return (size_t)(end - out);
}
