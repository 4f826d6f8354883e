/* Writes the DumpData message at the head of a dump file. */
#ifndef DSSIM_PROTO_H
#define DSSIM_PROTO_H

#include <stddef.h>
#include <stdint.h>

#include "tensors.h"

enum {
    MAX_OP_NAME = 64,
    MAX_TENSORS = 32,
    TENSOR_MESSAGE_BYTES = 512, /* more than any tensor's message takes */
    DUMP_DATA_BYTES = MAX_TENSORS * TENSOR_MESSAGE_BYTES + 256,
};

struct dump_data {
    uint64_t time_us;
    char op_name[MAX_OP_NAME];
    uint32_t tensors; /* inputs first */
    struct tensor tensor[MAX_TENSORS];
};

/* Returns the length of the message, at most DUMP_DATA_BYTES. */
size_t dump_data_write(const struct dump_data *data, uint8_t *out);

#endif
