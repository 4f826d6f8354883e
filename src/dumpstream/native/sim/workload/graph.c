#include "workload/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "flow/flow.h"
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
    struct op op = {.workload = workload, .rank = workload->rank, .number = number};
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
    found->values = op->values;
    return strcmp(found->name, name) == 0;
}

uint64_t op_key(const struct op *op) {
    return mix(mix(mix(op->workload->seed + op->rank, DRAW_MODEL), op->model) + DRAW_OP, op->place);
}

uint64_t op_step_key(const struct op *op, uint64_t step) {
    return mix(op_key(op) + DRAW_STEP, step);
}

/* Whether an item is for the rank: a rank that is named has only the items that name it. */
static bool is_for(const struct selectors *selectors, const struct selector *item, uint64_t rank) {
    bool named = false;
    for (uint32_t i = 0; i < selectors->count; i++)
        named = named || selectors->item[i].rank == rank;
    return item->rank == (named ? rank : EVERY_RANK);
}

static bool is_in(const struct selector *item, uint64_t step) {
    return item->step == EVERY_STEP || item->step == step;
}

bool op_selected(const struct op *op, uint64_t step, const struct selectors *selectors, uint64_t draw,
                 const struct selector **found) {
    for (const struct selector *item = selectors->item; item < selectors->item + selectors->count; item++) {
        bool chosen = item->kind == SELECT_OP && item->op == op->place && is_in(item, step);
        if (item->kind == SELECT_SHARE)
            chosen = unit(mix(op_step_key(op, step), draw)) < item->share;
        if (!chosen || !is_for(selectors, item, op->rank))
            continue;
        if (found != NULL)
            *found = item;
        return true;
    }
    return false;
}

const struct selector *selected_of(const struct selectors *selectors, int kind, uint64_t rank,
                                   uint64_t step) {
    for (const struct selector *item = selectors->item; item < selectors->item + selectors->count; item++)
        if ((int)item->kind == kind && is_in(item, step) && is_for(selectors, item, rank))
            return item;
    return NULL;
}

static bool has_fault(const struct op *op, uint64_t step, enum fault fault) {
    return op_selected(op, step, &op->workload->faults[fault], fault, NULL);
}

/* In a data flow, an operator makes wrong values whatever happens to its file. */
static uint32_t faults_of_values(const struct op *op, uint64_t step) {
    uint32_t faults = 0;
    for (enum fault fault = FAULT_NAN; fault <= FAULT_SATURATE; fault++)
        if (op->workload->flow && has_fault(op, step, fault))
            faults |= 1u << fault;
    return faults;
}

uint32_t op_faults(const struct op *op, uint64_t step) {
    const uint32_t of_values = faults_of_values(op, step);
    uint32_t faults = 0;
    for (enum fault fault = 0; fault < FAULT_OFFSETS && faults == 0; fault++)
        if (!(of_values & 1u << fault) && has_fault(op, step, fault))
            faults = 1u << fault;
    if (faults & 1u << FAULT_STATS_TEXT)
        return faults | of_values;
    faults |= of_values;
    if (has_fault(op, step, FAULT_SHUFFLE))
        return faults | 1u << FAULT_SHUFFLE;
    return has_fault(op, step, FAULT_OFFSETS) ? faults | 1u << FAULT_OFFSETS : faults;
}

uint32_t op_inputs(const struct op *op) {
    return op->workload->flow ? flow_op(op)->inputs : (uint32_t)op->workload->inputs;
}

uint32_t op_outputs(const struct op *op) {
    return op->workload->flow ? flow_op(op)->outputs : (uint32_t)op->workload->outputs;
}

bool op_overflows(const struct op *op, uint64_t step) {
    const uint32_t faults = op_faults(op, step);
    if (op->values == NULL)
        return faults & 1u << FAULT_OVERFLOW;
    return faults & 1u << FAULT_SATURATE || flow_overflows(op);
}

bool op_is_undumped(const struct op *op) {
    const struct undumped *undumped = &op->workload->undumped;
    for (uint32_t i = 0; i < undumped->count; i++)
        if (!op->is_call && undumped->op[i] == op->place)
            return true;
    return false;
}

uint32_t op_tensors(const struct op *op, uint32_t io) {
    uint32_t inputs = (1u << op_inputs(op)) - 1;
    uint32_t outputs = ((1u << op_outputs(op)) - 1) << op_inputs(op);
    return (io & IO_INPUTS ? inputs : 0) | (io & IO_OUTPUTS ? outputs : 0);
}

const char *call_kernel(const struct op *call) {
    return calls[call->place % CALLS].kernel;
}

void op_model_name(const struct op *op, char out[MAX_MODEL_NAME]) {
    snprintf(out, MAX_MODEL_NAME, "transformer_%llu", (unsigned long long)op->model);
}
