/* Statistics text (dump_data=stats) as CANN's host writes it. */
#pragma once

#include "device/dumpfile.h"

enum {
    STATISTICS_DEFAULT = 0x3f, /* all but the norm */
    STATS_MESSAGE_ROWS = 10,   /* as in a message from the kernel */
    STATS_ROW_BYTES = 512,
    STATS_HEADER_BYTES = 256,
};

_Static_assert(STATS_HEADER_BYTES + MAX_TENSORS * STATS_ROW_BYTES <= DUMP_DATA_BYTES, "text");

/* The names in dump_stats. A selection has the bits 1 << place. */
#define STATISTIC_NAMES "Max,Min,Avg,Nan,Negative Inf,Positive Inf,L2norm"

/* Returns the length of the line, with the newline and without the NUL. */
size_t stats_header(uint32_t selection, char out[STATS_HEADER_BYTES]);

/* Writes the header and the row of every tensor as the bytes of the file. The AICPU does not know
 * bfloat16, and leaves the cells of such a tensor empty. */
void stats_write(struct dump_file *file);
