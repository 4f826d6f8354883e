#include "workload/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "workload/random.h"

static const struct {
    const char *function;
    const char *kernel;
} calls[] = {
    {"aclnnMatmul", "MatMulV3"},
    {"aclnnAdd", "Add"},
    {"aclnnSoftmax", "SoftmaxV2"},
    {"aclnnCast", "Cast"},
};

enum { CALLS = sizeof calls / sizeof calls[0] };

uint64_t dssim_ops_per_step(const struct dssim_workload *workload) {
    return workload->models * workload->ops + workload->single_ops;
}

struct op graph_op(const struct dssim_workload *workload, uint64_t number) {
    uint64_t of_models = workload->models * workload->ops;
    struct op op = {.workload = workload, .number = number};
    if (number >= of_models) {
        op.is_call = true;
        op.model = workload->models;
        op.place = number - of_models;
        op.type = calls[op.place % CALLS].function;
        strcpy(op.name, op.type);
        return op;
    }
    op.model = number / workload->ops;
    op.place = number % workload->ops;
    op.type = workload->op_types.type[op.place % workload->op_types.count];
    snprintf(op.name, sizeof op.name, "layer_%llu_%s", (unsigned long long)op.place, op.type);
    return op;
}

bool graph_find(const struct op *op, const char *name, struct op *found) {
    static const char prefix[] = "layer_";
    const uint64_t ops = op->workload->ops;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    unsigned long long place = strtoull(name + strlen(prefix), NULL, 10);
    if (place >= ops)
        return false;
    *found = graph_op(op->workload, op->model * ops + place);
    return strcmp(found->name, name) == 0;
}

uint64_t op_key(const struct op *op) {
    return mix(mix(mix(op->workload->seed + op->workload->rank, DRAW_MODEL), op->model) + DRAW_OP, op->place);
}

uint64_t op_step_key(const struct op *op, uint64_t step) {
    return mix(op_key(op) + DRAW_STEP, step);
}

static bool has_fault(const struct op *op, uint64_t step, enum fault fault) {
    const struct selector *selector = &op->workload->faults[fault];
    if (selector->kind == SELECT_SHARE)
        return unit(mix(op_step_key(op, step), fault)) < selector->share;
    return selector->kind != SELECT_NONE && selector->op == op->place &&
           (selector->kind == SELECT_OP || selector->step == step);
}

uint32_t op_faults(const struct op *op, uint64_t step) {
    uint32_t faults = 0;
    for (enum fault fault = 0; fault < FAULT_OFFSETS && faults == 0; fault++)
        if (has_fault(op, step, fault))
            faults = 1u << fault;
    if (faults & 1u << FAULT_STATS_TEXT)
        return faults;
    if (has_fault(op, step, FAULT_SHUFFLE))
        return faults | 1u << FAULT_SHUFFLE;
    return has_fault(op, step, FAULT_OFFSETS) ? faults | 1u << FAULT_OFFSETS : faults;
}

uint32_t op_tensors(const struct op *op, uint32_t io) {
    uint32_t inputs = (1u << op->workload->inputs) - 1;
    uint32_t outputs = ((1u << op->workload->outputs) - 1) << op->workload->inputs;
    return (io & IO_INPUTS ? inputs : 0) | (io & IO_OUTPUTS ? outputs : 0);
}

const char *call_kernel(const struct op *call) {
    return calls[call->place % CALLS].kernel;
}

void op_model_name(const struct op *op, char out[MAX_MODEL_NAME]) {
    snprintf(out, MAX_MODEL_NAME, "transformer_%llu", (unsigned long long)op->model);
}
