/* Weights: what they are before the first step, and how they change from step to step. */
#pragma once

#include "flow/kernels.h"

/* Draws a weight by its key. */
void weight_begin(const struct flow_tensor *weight, uint64_t key, uint8_t *bytes);

/* Changes a weight after its operator has run, by a draw and by what the operator computed: bad values in a
 * column of the output are in that column of the weight from the next step on. It stays within its bounds. */
void weight_train(const struct flow_tensor *weight, uint64_t key, const struct operand *output,
                  uint8_t *bytes);
