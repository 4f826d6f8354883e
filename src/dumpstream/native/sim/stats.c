#include "stats.h"

#include <stdio.h>

#include "tensors.h"

const char stats_header[] =
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,"
    "Count,Nan Count,Negative Inf Count,Positive Inf Count\n";

size_t stats_row(const struct dump_file *file, uint32_t place, char out[STATS_ROW_BYTES]) {
    const struct tensor *tensor = &file->data.tensor[place];
    struct tensor_statistics statistics;
    char shape[MAX_DIMS * 21];
    size_t used = 0;
    uint32_t index = 0;
    for (uint32_t i = 0; i < tensor->dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%llu", i ? "x" : "",
                                 (unsigned long long)tensor->dim[i]);
    for (uint32_t i = 0; i < place; i++)
        index += file->data.tensor[i].is_output == tensor->is_output;
    tensor_measure(tensor, &statistics);
    return (size_t)snprintf(out, STATS_ROW_BYTES, "%s,%u,%llu,%s,ND,%s,%g,%g,%g,%llu,%llu,0,0\n",
                            tensor->is_output ? "Output" : "Input", index, (unsigned long long)tensor->bytes,
                            dtype_facts[tensor->dtype].cann_name, shape, statistics.max, statistics.min,
                            statistics.average, (unsigned long long)tensor->elements,
                            (unsigned long long)statistics.nans);
}
