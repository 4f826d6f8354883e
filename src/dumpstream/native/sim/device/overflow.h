/* The record of an overflow, in either of CANN's layouts. */
#pragma once

#include "workload/graph.h"

enum { OVERFLOW_RECORD_BYTES = 2048 };

/* The record has the task and the stream of the operator. `key` determines the addresses. */
void overflow_record(uint8_t out[OVERFLOW_RECORD_BYTES], const struct op *op, uint64_t key);
