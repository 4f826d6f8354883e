/* One dump file of a workload: its name, and any part of its bytes. */
#pragma once

#include "device/proto.h"
#include "workload/plan.h"

enum { OVERFLOW_RECORD_BYTES = 2048 };

/* How a file of statistics text is sent. */
struct stats_text {
    uint32_t selection;          /* bits of stats.h; 0: the file is not text */
    uint32_t rows;               /* the most rows in a message */
    bool by_aicpu;               /* as one message, with its header and without NUL */
    size_t end[MAX_TENSORS + 1]; /* of the header, and of the row of each tensor */
};

struct dump_file {
    char name[ACL_DUMP_MAX_FILE_PATH_LENGTH];
    uint64_t key;
    uint32_t faults; /* bits 1 << fault */
    struct stats_text text;
    struct dump_data data;
    uint8_t record[OVERFLOW_RECORD_BYTES]; /* of an overflow */
    size_t header_bytes;                   /* 8 + the DumpData message, or all of the text */
    uint8_t header[8 + DUMP_DATA_BYTES];
    uint64_t bytes; /* the header and every segment that is dumped */
};

static inline bool dump_file_has(const struct dump_file *file, enum fault fault) {
    return (file->faults & 1u << fault) != 0;
}

/* Returns 0, or -ENAMETOOLONG if the name does not fit after `dump_path`. */
int dump_file_plan(struct dump_file *file, const char *dump_path, const struct planned *planned);

/* Makes the header, or the text, again after a change of the data. */
void dump_file_close(struct dump_file *file);

/* When a step begins, by the clock of the rank. */
uint64_t dump_file_step_us(const struct dssim_workload *workload, uint64_t step);

/* Writes bytes [offset, offset + bytes) of the file to `out`. */
void dump_file_read(const struct dump_file *file, uint64_t offset, size_t bytes, uint8_t *out);
