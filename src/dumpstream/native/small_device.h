/* The header that small devices write instead of a DumpData message: a magic number, a version, then blocks
 * of inputs and of outputs. CANN's documents call these devices nano. */
#pragma once

#include "dumpstream/header.h"

/* Whether the bytes begin with the magic number. */
bool is_small(const uint8_t *bytes, size_t length);

/* Skips the magic number and the version. Sets the fault of a version that is not known. */
void small_begin(struct ds_dump_data *message);

/* Reads the next tensor as `ds_dump_data_next` does. */
bool small_next(struct ds_dump_data *message, struct ds_entry *entry);

/* Sets the fault and returns false. */
static inline bool fail(struct ds_dump_data *message, const uint8_t *where, const char *fault) {
    message->fault = fault;
    message->fault_position = (size_t)(where - message->begin);
    return false;
}

static inline bool add_dim(struct ds_dump_data *message, const uint8_t *where, struct ds_dims *dims,
                           uint64_t dim) {
    if (dims->count == DS_MAX_DIMS)
        return fail(message, where, "a shape has more than 32 dimensions");
    dims->dim[dims->count++] = dim;
    return true;
}

static inline bool count_entry(struct ds_dump_data *message, const uint8_t *where) {
    return ++message->entries <= DS_MAX_ENTRIES ||
           fail(message, where, "there are more than 65536 segments and attributes");
}
