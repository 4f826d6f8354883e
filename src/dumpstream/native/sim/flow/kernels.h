/* What operators compute, in float32, with results that are the same on every processor. */
#pragma once

#include "flow/program.h"

struct operand {
    enum dtype dtype;
    uint32_t rows, columns;
    uint8_t *bytes; /* aligned to the elements */
};

/* Runs an operator that needs no other rank. The first output may lie on the first input, unless the operator
 * is a product of matrices or picks rows. */
void kernel_run(enum flow_kind kind, const struct operand *inputs, const struct operand *outputs);

/* Runs a collective: one input and one output of every rank, which may lie on each other. Returns false if
 * there is no memory. */
bool kernel_exchange(enum flow_kind kind, uint32_t ranks, const struct operand *inputs,
                     const struct operand *outputs);
