#include "dumpfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "random.h"

static const char *const op_types[] = {
    "MatMulV2", "Relu", "LayerNorm", "Add", "SoftmaxV2", "GatherV2", "Mul", "Cast",
};

enum { OP_TYPES = sizeof op_types / sizeof op_types[0] };

/* Numbers that keep the sequences of one key apart. */
enum { DRAW_TIME = 1000, DRAW_MODEL, DRAW_OP, DRAW_STEP, DRAW_CLOCK, DRAW_ADDRESS, DRAW_DTYPE, DRAW_BYTES };

static uint64_t run_began_s(const struct dssim_workload *workload) {
    const uint64_t year_s = 365 * 86400;
    return UINT64_C(1767225600) + below(mix(workload->seed, DRAW_TIME), year_s);
}

static void set_shape(struct tensor *tensor, const struct dssim_workload *workload, uint64_t op_key,
                      uint64_t bytes_drawn) {
    const uint32_t width = dtype_facts[tensor->dtype].bytes;
    if (workload->dims > 0) {
        tensor->dims = workload->dims;
        memcpy(tensor->dim, workload->dim, sizeof tensor->dim);
        tensor->elements = 1;
        for (uint32_t i = 0; i < tensor->dims; i++)
            tensor->elements *= tensor->dim[i];
    } else {
        uint64_t span = workload->most_tensor_bytes - workload->least_tensor_bytes + 1;
        uint64_t bytes = workload->least_tensor_bytes + below(mix(op_key, bytes_drawn), span);
        uint64_t columns = 1024;
        tensor->elements = bytes < width ? 1 : bytes / width;
        while (tensor->elements % columns != 0)
            columns /= 2;
        tensor->dims = 2;
        tensor->dim[0] = tensor->elements / columns;
        tensor->dim[1] = columns;
    }
    tensor->bytes = tensor->elements * width;
}

/* Data types and shapes belong to the operator; values also to the step. */
static void plan_tensor(struct dump_file *file, const struct dssim_workload *workload, uint64_t op_key,
                        uint32_t place) {
    struct tensor *tensor = &file->data.tensor[place];
    uint64_t draws = (uint64_t)place << 16;
    *tensor = (struct tensor){
        .dtype = workload->dtype[below(mix(op_key, draws + DRAW_DTYPE), workload->dtypes)],
        .is_output = place >= workload->inputs,
        .key = mix(file->key, draws),
    };
    tensor->rectified = place == 0 || tensor->is_output; /* the other inputs are weights */
    if (dump_file_has(file, FAULT_NAN) && place == workload->inputs) {
        tensor->has_nan = true;
        if (!dtype_facts[tensor->dtype].floating)
            tensor->dtype = DTYPE_FLOAT32;
    }
    set_shape(tensor, workload, op_key, draws + DRAW_BYTES);
    if (!dump_file_has(file, FAULT_NULL_ADDRESS) || place > 0)
        tensor->address =
            UINT64_C(0x12c000000000) + 512 * below(mix(file->key, draws + DRAW_ADDRESS), 1 << 26);
}

static int set_name(struct dump_file *file, const struct dssim_workload *workload, const char *dump_path,
                    uint64_t model, uint64_t op, uint64_t step) {
    const char *type = op_types[op % OP_TYPES];
    time_t began = (time_t)run_began_s(workload);
    char began_text[24];
    struct tm calendar;
    int length;
    strftime(began_text, sizeof began_text, "%Y%m%d%H%M%S", gmtime_r(&began, &calendar));
    snprintf(file->data.op_name, sizeof file->data.op_name, "layer_%llu_%s", (unsigned long long)op, type);
    length = snprintf(
        file->name, sizeof file->name, "%s/%s/%llu//transformer_%llu/%llu/%llu/%s.%s.%llu.%llu.%llu%s",
        dump_path, began_text, (unsigned long long)workload->device_id, (unsigned long long)model,
        (unsigned long long)(model + 1), (unsigned long long)step, type, file->data.op_name,
        (unsigned long long)(op + 2), (unsigned long long)(model + 3), (unsigned long long)file->data.time_us,
        dump_file_has(file, FAULT_STATS_TEXT) ? ".csv" : "");
    return length < 0 || (size_t)length >= sizeof file->name ? -ENAMETOOLONG : 0;
}

static void write_header(struct dump_file *file) {
    size_t message = dump_data_write(&file->data, file->header + 8);
    for (int i = 0; i < 8; i++)
        file->header[i] = (uint8_t)((uint64_t)message >> (8 * i));
    file->header_bytes = 8 + message;
}

int dump_file_plan(struct dump_file *file, const struct dssim_workload *workload, const char *dump_path,
                   uint64_t step, uint64_t number) {
    uint64_t model = number / workload->ops, op = number % workload->ops;
    uint64_t op_key = mix(mix(mix(workload->seed, DRAW_MODEL), model) + DRAW_OP, op);
    file->key = mix(op_key + DRAW_STEP, step);
    file->faults = workload_faults(workload, file->key, op, step);
    file->data.time_us =
        (run_began_s(workload) + 1 + step) * 1000000 + number * 37 + below(mix(file->key, DRAW_CLOCK), 37);
    file->data.tensors = (uint32_t)(workload->inputs + workload->outputs);
    for (uint32_t i = 0; i < file->data.tensors; i++)
        plan_tensor(file, workload, op_key, i);
    if (set_name(file, workload, dump_path, model, op, step) != 0)
        return -ENAMETOOLONG;
    write_header(file);
    file->bytes = file->header_bytes;
    if (!dump_file_has(file, FAULT_HEADER_ONLY))
        for (uint32_t i = 0; i < file->data.tensors; i++)
            if (file->data.tensor[i].address != 0)
                file->bytes += file->data.tensor[i].bytes;
    return 0;
}

static size_t overlap(uint64_t begin, uint64_t end, uint64_t offset, size_t bytes) {
    uint64_t stop = offset + bytes < end ? offset + bytes : end;
    return offset >= begin && offset < stop ? (size_t)(stop - offset) : 0;
}

void dump_file_read(const struct dump_file *file, uint64_t offset, size_t bytes, uint8_t *out) {
    uint64_t begin = file->header_bytes;
    size_t taken = overlap(0, begin, offset, bytes);
    if (taken > 0)
        memcpy(out, file->header + offset, taken);
    for (uint32_t i = 0; i < file->data.tensors && taken < bytes; i++) {
        const struct tensor *tensor = &file->data.tensor[i];
        uint64_t at = offset + taken;
        size_t part;
        if (tensor->address == 0)
            continue;
        part = overlap(begin, begin + tensor->bytes, at, bytes - taken);
        if (part > 0)
            tensor_read(tensor, at - begin, part, out + taken);
        taken += part;
        begin += tensor->bytes;
    }
}
