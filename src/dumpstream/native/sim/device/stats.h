/* Statistics text (dump_data=stats) as CANN's host writes it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device/dumpfile.h"

enum {
    STATISTIC_COUNT = 7,
    STATISTICS_DEFAULT = 0x3f, /* all but the norm */
    STATS_MESSAGE_ROWS = 10,   /* as many as the kernel's message has */
    STATS_ROW_BYTES = 512,
    STATS_HEADER_BYTES = 256,
};

/* As dump_stats names them, and NULL. A selection is bits 1 << place. */
extern const char *const statistic_names[STATISTIC_COUNT + 1];

/* Both return the length of the line, with its end and without the NUL. */

size_t stats_header(uint32_t selection, char out[STATS_HEADER_BYTES]);

/* The row of one of the file's tensors. The AICPU does not know
 * bfloat16, and leaves the cells of one empty. */
size_t stats_row(const struct dump_file *file, uint32_t place, char out[STATS_ROW_BYTES]);
