#include "device/proto.h"

#include <string.h>

/* Field numbers of toolkit.dump; input and output differ from 4 on. */
enum {
    DATA_VERSION = 1,
    DATA_TIME = 2,
    DATA_OUTPUT = 3,
    DATA_INPUT = 4,
    DATA_OP_NAME = 6,
    DATA_ATTRIBUTE = 7,
    DATA_SPACE = 8,
    DATA_DFX_MESSAGE = 9,

    TENSOR_DTYPE = 1,
    TENSOR_FORMAT = 2,
    TENSOR_SHAPE = 3,

    OUTPUT_ORIGINAL_OP = 4,
    OUTPUT_SIZE = 6,
    OUTPUT_ORIGINAL_SHAPE = 7,
    OUTPUT_ADDRESS = 9,
    OUTPUT_ARG_INDEX = 12,

    INPUT_SIZE = 5,
    INPUT_ORIGINAL_SHAPE = 6,
    INPUT_ADDRESS = 8,
    INPUT_ARG_INDEX = 10,
    INPUT_TYPE = 11,

    SPACE_SIZE = 3,
    SPACE_ARG_INDEX = 4,

    ORIGINAL_OP_NAME = 1,
    ORIGINAL_OP_OUTPUT_INDEX = 2,

    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_VALUE = 2,

    SHAPE_DIM = 1,

    FORMAT_ND = 2,
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

static uint8_t *put_output(uint8_t *out, const struct tensor *tensor, const char *original_op) {
    uint8_t original[MAX_OP_NAME + 16], *original_end = original;
    original_end = put_bytes(original_end, ORIGINAL_OP_NAME, original_op, strlen(original_op));
    original_end = put_number(original_end, ORIGINAL_OP_OUTPUT_INDEX, tensor->index);
    out = put_bytes(out, OUTPUT_ORIGINAL_OP, original, (size_t)(original_end - original));
    out = put_number(out, OUTPUT_SIZE, tensor->bytes);
    out = put_shape(out, OUTPUT_ORIGINAL_SHAPE, tensor);
    out = put_number(out, OUTPUT_ADDRESS, tensor->address);
    return put_number(out, OUTPUT_ARG_INDEX, tensor->arg_index);
}

static uint8_t *put_input(uint8_t *out, const struct tensor *tensor) {
    out = put_number(out, INPUT_SIZE, tensor->bytes);
    out = put_shape(out, INPUT_ORIGINAL_SHAPE, tensor);
    out = put_number(out, INPUT_ADDRESS, tensor->address);
    out = put_number(out, INPUT_ARG_INDEX, tensor->arg_index);
    return put_number(out, INPUT_TYPE, tensor->kind);
}

static uint8_t *put_tensor(uint8_t *out, const struct tensor *tensor, const char *original_op) {
    static const uint32_t fields[] = {
        [PART_INPUT] = DATA_INPUT,
        [PART_OUTPUT] = DATA_OUTPUT,
        [PART_SPACE] = DATA_SPACE,
    };
    uint8_t message[TENSOR_MESSAGE_BYTES], *end = message;
    if (tensor->part == PART_SPACE) {
        end = put_number(end, SPACE_SIZE, tensor->bytes);
        end = put_number(end, SPACE_ARG_INDEX, tensor->arg_index);
    } else {
        end = put_number(end, TENSOR_DTYPE, tensor->untyped ? 0 : dtype_facts[tensor->dtype].number);
        end = put_number(end, TENSOR_FORMAT, FORMAT_ND);
        end = put_shape(end, TENSOR_SHAPE, tensor);
        end = tensor->part == PART_OUTPUT ? put_output(end, tensor, original_op) : put_input(end, tensor);
    }
    return put_bytes(out, fields[tensor->part], message, (size_t)(end - message));
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
