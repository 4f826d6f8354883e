#include "device/stats.h"

#include <stdio.h>

static const char *const titles[STATISTIC_COUNT] = {
    "Max Value", "Min Value", "Avg Value", "Nan Count", "Negative Inf Count", "Positive Inf Count", "l2norm",
};

/* The number of elements is the first column, but the fourth one among the default statistics. */
static uint32_t place_of_count(uint32_t selection) {
    return selection == STATISTICS_DEFAULT ? 3 : 0;
}

size_t stats_header(uint32_t selection, char out[STATS_HEADER_BYTES]) {
    size_t used =
        (size_t)snprintf(out, STATS_HEADER_BYTES, "Input/Output,Index,Data Size,Data Type,Format,Shape");
    for (uint32_t i = 0; i < STATISTIC_COUNT; i++) {
        if (i == place_of_count(selection))
            used += (size_t)snprintf(out + used, STATS_HEADER_BYTES - used, ",Count");
        if (selection & 1u << i)
            used += (size_t)snprintf(out + used, STATS_HEADER_BYTES - used, ",%s", titles[i]);
    }
    return used + (size_t)snprintf(out + used, STATS_HEADER_BYTES - used, "\n");
}

static size_t put_values(const struct tensor *tensor, uint32_t selection, char *out, size_t room) {
    double values[MEASURED_COUNT];
    size_t used = 0;
    tensor_measure(tensor, values);
    for (uint32_t i = 0; i < STATISTIC_COUNT; i++) {
        bool counts = i >= NANS && i <= POSITIVE_INFINITIES;
        if (i == place_of_count(selection))
            used += (size_t)snprintf(out + used, room - used, ",%llu", (unsigned long long)tensor->elements);
        if (selection & 1u << i)
            used += (size_t)snprintf(out + used, room - used, counts ? ",%.0f" : ",%g", values[i]);
    }
    return used + (size_t)snprintf(out + used, room - used, "\n");
}

static size_t put_row(const struct tensor *tensor, const struct stats_text *text, char *out) {
    const char *type = dtype_facts[tensor->dtype].cann_name;
    const bool unknown = text->by_aicpu && tensor->dtype == DTYPE_BFLOAT16;
    char shape[MAX_SHAPE * 21];
    size_t used = 0;
    for (uint32_t i = 0; i < tensor->dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%llu", i ? "x" : "",
                                 (unsigned long long)tensor->dim[i]);
    used = (size_t)snprintf(out, STATS_ROW_BYTES, "%s,%u,%llu,%s,ND,%s",
                            tensor->part == PART_OUTPUT ? "Output" : "Input", tensor->index,
                            (unsigned long long)tensor->bytes, unknown ? "-" : type, shape);
    if (unknown)
        return used + (size_t)snprintf(out + used, STATS_ROW_BYTES - used, ",,,,,,,\n");
    return used + put_values(tensor, text->selection, out + used, STATS_ROW_BYTES - used);
}

void stats_write(struct dump_file *file) {
    char *out = (char *)file->header;
    size_t used = stats_header(file->text.selection, out);
    file->text.end[0] = used;
    for (uint32_t i = 0; i < file->data.tensors; i++) {
        used += put_row(&file->data.tensor[i], &file->text, out + used);
        file->text.end[i + 1] = used;
    }
    file->bytes = file->header_bytes = used;
}
