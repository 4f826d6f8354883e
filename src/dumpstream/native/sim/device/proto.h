/* Writes the DumpData message at the head of a dump file. */
#pragma once

#include "workload/tensors.h"

enum {
    MAX_OP_NAME = 64,
    MAX_TENSORS = 40,           /* 16 inputs, 16 outputs, and what exception dumps add */
    TENSOR_MESSAGE_BYTES = 768, /* more than the message of any tensor needs */
    MAX_DFX_MESSAGE = 128,
    MAX_USER_TAG = 128,
    DUMP_DATA_BYTES = MAX_TENSORS * TENSOR_MESSAGE_BYTES + 640,
};

struct dump_data {
    uint64_t time_us;
    char op_name[2 * MAX_OP_NAME + 4];
    char original_op[MAX_OP_NAME];     /* the operator that the outputs belong to */
    char dfx_message[MAX_DFX_MESSAGE]; /* of an exception */
    char user_tag[MAX_USER_TAG];       /* of an exception that the program saves */
    uint32_t tensors;                  /* inputs first, then outputs, then spaces */
    struct tensor tensor[MAX_TENSORS];
};

/* Returns the length of the message, at most DUMP_DATA_BYTES. */
size_t dump_data_write(const struct dump_data *data, uint8_t *out);
