#include "device/dumpfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/stats.h"
#include "flow/flow.h"
#include "workload/random.h"

/* Places and numbers in the record of an overflow. */
enum {
    AI_CORE_INFO = 256,
    AI_CORE_STATUS = 1024,

    MAGIC = 0x5a5a5a5a,
    VERSION = 1,
    AI_CORE = 0,
    ENTRY = 24, /* where the numbers of the newer layout's entry are */

    STATUS_OVERFLOW = 0x8,
};

/* When the run began, by the clock of rank 0. */
static uint64_t began_s(const struct dssim_workload *workload) {
    const uint64_t year_s = 365 * 86400;
    return UINT64_C(1767225600) + below(mix(workload->seed, DRAW_TIME), year_s);
}

uint64_t dump_file_step_us(const struct dssim_workload *workload, uint64_t step) {
    const int64_t ahead = (int64_t)workload->rank * workload->skew;
    return (began_s(workload) + 1 + step) * 1000000 + (uint64_t)ahead;
}

static void set_shape(struct tensor *tensor, const struct dssim_workload *workload, uint64_t shape_key,
                      uint64_t bytes_drawn) {
    const uint32_t width = dtype_facts[tensor->dtype].bytes;
    if (workload->shape.dims > 0) {
        tensor->dims = workload->shape.dims;
        memcpy(tensor->dim, workload->shape.dim, sizeof workload->shape.dim);
        tensor->elements = 1;
        for (uint32_t i = 0; i < tensor->dims; i++)
            tensor->elements *= tensor->dim[i];
    } else {
        uint64_t span = workload->tensor_bytes.most - workload->tensor_bytes.least + 1;
        uint64_t bytes = workload->tensor_bytes.least + below(mix(shape_key, bytes_drawn), span);
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

/* Whether the first output was overwritten before it was dumped. */
static bool is_overwritten(const struct planned *planned) {
    const struct overwrite *overwrite = &planned->op.workload->overwrite;
    if (!overwrite->happens || planned->op.is_call || planned->op.place != overwrite->victim)
        return false;
    return planned->after.place >= overwrite->by && (!overwrite->once || overwrite->step == planned->step);
}

/* Data types and shapes depend on the operator; values also depend on the step. */
static struct tensor draw_tensor(const struct dump_file *file, const struct planned *planned,
                                 uint32_t place) {
    const struct dssim_workload *workload = planned->op.workload;
    const uint64_t shape_key = op_key(&planned->op);
    const uint64_t draws = (uint64_t)place << 16;
    const bool is_output = place >= workload->inputs;
    struct tensor tensor = {
        .dtype = workload->dtypes.dtype[below(mix(shape_key, draws + DRAW_DTYPE), workload->dtypes.count)],
        .part = is_output ? PART_OUTPUT : PART_INPUT,
        .index = is_output ? place - (uint32_t)workload->inputs : place,
        .rectified = is_output || place == 0, /* the other inputs are weights */
        .key = mix(file->key, draws),
        .address = UINT64_C(0x12c000000000) + 512 * below(mix(file->key, draws + DRAW_ADDRESS), 1 << 26),
    };
    if (place == workload->inputs) {
        tensor.has_nan = dump_file_has(file, FAULT_NAN);
        tensor.has_infinity = dump_file_has(file, FAULT_OVERFLOW);
        if ((tensor.has_nan || tensor.has_infinity) && !dtype_facts[tensor.dtype].floating)
            tensor.dtype = DTYPE_FLOAT32;
    }
    set_shape(&tensor, workload, shape_key, draws + DRAW_BYTES);
    return tensor;
}

static void plan_tensor(struct dump_file *file, const struct planned *planned, uint32_t place) {
    const struct op *op = &planned->op;
    struct tensor *tensor = &file->data.tensor[file->data.tensors];
    *tensor =
        op->values != NULL ? flow_dumped(op, place, planned->is_before) : draw_tensor(file, planned, place);
    tensor->overwritten = place == op_inputs(op) && is_overwritten(planned);
    if (dump_file_has(file, FAULT_NULL_ADDRESS) && file->data.tensors == 0)
        tensor->address = 0;
    file->data.tensors++;
}

/* Writes the last part of the name: the operator, the task and the stream that the file comes
 * after, and the time. The record of an overflow has a task and a stream of its own. */
static void name_op(const struct dump_file *file, const struct planned *planned, char *out, size_t room) {
    const struct op *op = &planned->op, *after = &planned->after;
    const struct dssim_workload *workload = op->workload;
    uint64_t task = planned->is_opdebug ? workload->ops + 2 : op_task(after);
    uint64_t stream = op_stream(after) + (planned->is_opdebug ? workload->models : 0);
    char type[MAX_OP_NAME];
    if (op->is_call)
        snprintf(type, sizeof type, "%.30s_%llu_%s", op->type,
                 (unsigned long long)(planned->step * workload->single_ops + op->place),
                 planned->is_kernel ? "L0" : "L2");
    else
        snprintf(type, sizeof type, "%s", planned->is_opdebug ? "Opdebug" : op->type);
    snprintf(out, room, "%s.%s.%llu.%llu.%llu", type, file->data.op_name, (unsigned long long)task,
             (unsigned long long)stream, (unsigned long long)file->data.time_us);
}

static int set_name(struct dump_file *file, const char *dump_path, const struct planned *planned) {
    const struct op *op = &planned->op;
    time_t began = (time_t)began_s(op->workload);
    char began_text[24], directory[96] = "", model[MAX_MODEL_NAME], last[256];
    struct tm calendar;
    strftime(began_text, sizeof began_text, "%Y%m%d%H%M%S", gmtime_r(&began, &calendar));
    op_model_name(op, model);
    if (!op->is_call)
        snprintf(directory, sizeof directory, "/%s/%llu/%llu/", model, (unsigned long long)(op->model + 1),
                 (unsigned long long)planned->step);
    name_op(file, planned, last, sizeof last);
    int length = snprintf(file->name, sizeof file->name, "%s/%s/%llu/%s%s%s", dump_path, began_text,
                          (unsigned long long)op->workload->device_id, directory, last,
                          file->text.selection ? ".csv" : "");
    return length < 0 || (size_t)length >= sizeof file->name ? -ENAMETOOLONG : 0;
}

static void put64s(uint8_t *out, const uint64_t *values, uint32_t count) {
    for (uint32_t i = 0; i < count * 8; i++)
        out[i] = (uint8_t)(values[i / 8] >> (8 * (i % 8)));
}

void dump_file_close(struct dump_file *file) {
    if (file->text.selection) {
        stats_write(file);
        return;
    }
    const uint64_t message = dump_data_write(&file->data, file->header + 8);
    put64s(file->header, &message, 1);
    file->header_bytes = 8 + message;
    file->bytes = file->header_bytes;
    if (!dump_file_has(file, FAULT_HEADER_ONLY))
        for (uint32_t i = 0; i < file->data.tensors; i++)
            if (file->data.tensor[i].address != 0)
                file->bytes += file->data.tensor[i].bytes;
}

/* Text that the configuration asks for has no faults except those in the values. */
static void set_text(struct dump_file *file, bool by_aicpu, uint32_t selection) {
    const uint32_t in_values = 1u << FAULT_NAN | 1u << FAULT_OVERFLOW | 1u << FAULT_SATURATE;
    file->text = (struct stats_text){.rows = 1};
    if (selection) {
        file->faults &= in_values;
        file->text.selection = by_aicpu ? STATISTICS_DEFAULT : selection;
        file->text.rows = by_aicpu ? MAX_TENSORS : STATS_MESSAGE_ROWS;
        file->text.by_aicpu = by_aicpu;
    } else if (dump_file_has(file, FAULT_STATS_TEXT)) {
        file->text.selection = STATISTICS_DEFAULT;
    }
}

static void set_time(struct dump_file *file, const struct planned *planned) {
    const struct op *after = &planned->after;
    uint64_t drawn = mix(op_step_key(after, planned->step), DRAW_CLOCK);
    file->data.time_us = dump_file_step_us(after->workload, planned->step) + after->number * 37 +
                         below(drawn, 37) + planned->place;
}

/* The name for a watched operator that is dumped after another one contains both. */
static void set_op_name(struct dump_file *file, const struct planned *planned) {
    const struct op *op = &planned->op;
    const char *name = planned->is_kernel && op->is_call ? call_kernel(op) : op->name;
    const char *suffix = planned->is_kernel && !op->is_call ? "_kernel" : "";
    snprintf(file->data.original_op, sizeof file->data.original_op, "%.52s%s", name, suffix);
    if (planned->after.number == op->number)
        strcpy(file->data.op_name, file->data.original_op);
    else
        snprintf(file->data.op_name, sizeof file->data.op_name, "%s_To_%s", planned->after.name,
                 file->data.original_op);
}

static void put32(uint8_t *out, uint32_t value) {
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

/* Writes the record of an overflow, in either of CANN's layouts, with the task and the stream of the
 * operator. `key` determines the addresses. */
static void write_record(uint8_t out[OVERFLOW_RECORD_BYTES], const struct op *op, uint64_t key) {
    const uint64_t pc_start = UINT64_C(0x124000000000) + 128 * below(mix(key, DRAW_ADDRESS), 1 << 20);
    const uint64_t para_base = pc_start + (1 << 30);
    const uint64_t block = below(mix(key, DRAW_CLOCK), 32);
    const uint64_t older[] = {op->model + 1, op_stream(op), op_task(op), 0, pc_start, para_base};
    const uint64_t status[] = {pc_start + 0x40, block, STATUS_OVERFLOW};
    const uint64_t entry[] = {op->model + 1, op_stream(op), op_task(op),    0, 0, 0, pc_start, para_base,
                              block,         block,         STATUS_OVERFLOW};
    memset(out, 0, OVERFLOW_RECORD_BYTES);
    if (op->workload->opdebug) {
        const uint32_t head[] = {MAGIC, VERSION, true, AI_CORE, 0, sizeof entry};
        for (uint32_t i = 0; i < sizeof head / sizeof head[0]; i++)
            put32(out + 4 * i, head[i]);
        put64s(out + ENTRY, entry, sizeof entry / sizeof entry[0]);
        return;
    }
    put64s(out + AI_CORE_INFO, older, sizeof older / sizeof older[0]);
    put64s(out + AI_CORE_STATUS, status, sizeof status / sizeof status[0]);
}

/* The record is the one output of an operator of its own. */
static void plan_record(struct dump_file *file, const struct planned *planned) {
    write_record(file->record, &planned->op, file->key);
    file->faults = 0;
    strcpy(file->data.op_name, "Node_OpDebug");
    strcpy(file->data.original_op, "Node_OpDebug");
    file->data.tensor[0] = (struct tensor){
        .dtype = DTYPE_UINT8,
        .part = PART_OUTPUT,
        .dims = 1,
        .dim = {OVERFLOW_RECORD_BYTES},
        .elements = OVERFLOW_RECORD_BYTES,
        .bytes = OVERFLOW_RECORD_BYTES,
        .address = UINT64_C(0x12c0ffe00000),
        .given = file->record,
    };
    file->data.tensors = 1;
}

int dump_file_plan(struct dump_file *file, const char *dump_path, const struct planned *planned) {
    const struct op *op = &planned->op;
    file->key = op_step_key(op, planned->step);
    file->faults = op_faults(op, planned->step);
    set_text(file, op->workload->stats_by, planned->statistics);
    set_time(file, planned);
    file->data.dfx_message[0] = file->data.user_tag[0] = '\0';
    file->data.tensors = 0;
    if (planned->is_opdebug) {
        plan_record(file, planned);
    } else {
        set_op_name(file, planned);
        for (uint32_t place = 0; place < 2 * MAX_PART; place++)
            if (planned->tensors & 1u << place)
                plan_tensor(file, planned, place);
    }
    if (set_name(file, dump_path, planned) != 0)
        return -ENAMETOOLONG;
    dump_file_close(file);
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
        if (tensor->address == 0)
            continue;
        size_t part = overlap(begin, begin + tensor->bytes, at, bytes - taken);
        if (part > 0)
            tensor_read(tensor, at - begin, part, out + taken);
        taken += part;
        begin += tensor->bytes;
    }
}
