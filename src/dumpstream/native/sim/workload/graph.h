/* The operators of a workload in one step, in order: those of its models, then calls of
 * single operators. */
#pragma once

#include <string.h>

#include "device/proto.h"
#include "workload/workload.h"

struct op {
    const struct dssim_workload *workload;
    const struct flow_step *values; /* of the step, in a data flow; else NULL */
    uint64_t rank;
    uint64_t number; /* in the step */
    uint64_t model;  /* for a call: the number of models */
    uint64_t place;  /* in the model, or among the calls */
    bool is_call;
    const char *type; /* in the workload; for a call: the aclnn function */
    char name[MAX_OP_NAME];
};

/* `number` is below dssim_ops_per_step. */
struct op graph_op(const struct dssim_workload *workload, uint64_t number);

/* Returns whether the model of `op` has an operator of this name. */
bool graph_find(const struct op *op, const char *name, struct op *found);

/* The keys of the operator's random numbers: for all steps, and for one. */
uint64_t op_key(const struct op *op);
uint64_t op_step_key(const struct op *op, uint64_t step);

/* Whether a selector chooses the operator in this step. Sets *found, unless it is NULL, to the item. */
bool op_selected(const struct op *op, uint64_t step, const struct selectors *selectors, uint64_t draw,
                 const struct selector **found);

/* The item that applies to what is not an operator, or NULL. */
const struct selector *selected_of(const struct selectors *selectors, int kind, uint64_t rank, uint64_t step);

/* The faults of its files, as bits 1 << fault. */
uint32_t op_faults(const struct op *op, uint64_t step);

uint32_t op_inputs(const struct op *op);
uint32_t op_outputs(const struct op *op);

/* Whether it overflows; in a data flow it does if its results are not finite. */
bool op_overflows(const struct op *op, uint64_t step);

/* Whether it is never dumped. */
bool op_is_undumped(const struct op *op);

/* Those of its inputs and outputs that `io`, bits of config.h, names. As bits, the inputs first. */
uint32_t op_tensors(const struct op *op, uint32_t io);

static inline uint64_t op_task(const struct op *op) {
    return op->is_call ? op->place + 1 : op->place + 2;
}

static inline uint64_t op_stream(const struct op *op) {
    return op->is_call ? 65535 : op->model + 3;
}

/* Whether it feeds the next operator and computes nothing. */
static inline bool op_is_data(const struct op *op) {
    return strcmp(op->type, "Data") == 0;
}

/* Whether it exchanges data with other devices, and changes its inputs. */
static inline bool op_is_collective(const struct op *op) {
    return strncmp(op->type, "Hcom", 4) == 0;
}

/* The name of the operator that a call runs on the device. */
const char *call_kernel(const struct op *call);

enum { MAX_MODEL_NAME = 40 };

void op_model_name(const struct op *op, char out[MAX_MODEL_NAME]);
