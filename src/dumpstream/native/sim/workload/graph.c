#include "workload/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct op graph_op(const struct dssim_workload *workload, uint64_t number) {
    uint64_t of_models = workload->models * workload->ops;
    struct op op = {.number = number};
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
    op.type = workload->op_type[op.place % workload->op_types];
    snprintf(op.name, sizeof op.name, "layer_%llu_%s", (unsigned long long)op.place, op.type);
    return op;
}

bool graph_find(const struct dssim_workload *workload, uint64_t model, const char *name, struct op *found) {
    static const char prefix[] = "layer_";
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    unsigned long long place = strtoull(name + strlen(prefix), NULL, 10);
    if (place >= workload->ops)
        return false;
    *found = graph_op(workload, model * workload->ops + place);
    return strcmp(found->name, name) == 0;
}

uint64_t op_key(const struct dssim_workload *workload, const struct op *op) {
    return mix(mix(mix(workload->seed, DRAW_MODEL), op->model) + DRAW_OP, op->place);
}

uint64_t op_step_key(const struct dssim_workload *workload, const struct op *op, uint64_t step) {
    return mix(op_key(workload, op) + DRAW_STEP, step);
}

uint64_t op_task(const struct op *op) {
    return op->is_call ? op->place + 1 : op->place + 2;
}

uint64_t op_stream(const struct op *op) {
    return op->is_call ? 65535 : op->model + 3;
}

bool op_is_data(const struct op *op) {
    return strcmp(op->type, "Data") == 0;
}

bool op_is_collective(const struct op *op) {
    return strncmp(op->type, "Hcom", 4) == 0;
}

const char *call_kernel(const struct op *call) {
    return calls[call->place % CALLS].kernel;
}

void graph_model_name(uint64_t model, char out[MAX_MODEL_NAME]) {
    snprintf(out, MAX_MODEL_NAME, "transformer_%llu", (unsigned long long)model);
}
