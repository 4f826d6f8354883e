/* Statistics text (dump_data=stats) as CANN's host writes it. */
#ifndef DSSIM_STATS_H
#define DSSIM_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "dumpfile.h"

enum { STATS_ROW_BYTES = 512 };

extern const char stats_header[];

/* Writes the row of one tensor, with its line end and a NUL. Returns its
 * length without the NUL, which is below STATS_ROW_BYTES. */
size_t stats_row(const struct dump_file *file, uint32_t place, char out[STATS_ROW_BYTES]);

#endif
