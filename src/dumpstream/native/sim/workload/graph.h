/* The operators of a workload in one step, in order: those of its models, then calls of
 * single operators. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "device/proto.h"
#include "workload/workload.h"

struct op {
    uint64_t number; /* in the step */
    uint64_t model;  /* for a call: the number of models */
    uint64_t place;  /* in the model, or among the calls */
    bool is_call;
    const char *type; /* for a call: the aclnn function */
    char name[MAX_OP_NAME];
};

static inline uint64_t graph_ops(const struct dssim_workload *workload) {
    return workload->models * workload->ops + workload->single_ops;
}

/* The result points into the workload. */
struct op graph_op(const struct dssim_workload *workload, uint64_t number);

/* Returns whether the model has an operator of this name. */
bool graph_find(const struct dssim_workload *workload, uint64_t model, const char *name, struct op *found);

/* The keys of the operator's random numbers: for all steps, and for one. */
uint64_t op_key(const struct dssim_workload *workload, const struct op *op);
uint64_t op_step_key(const struct dssim_workload *workload, const struct op *op, uint64_t step);

uint64_t op_task(const struct op *op);
uint64_t op_stream(const struct op *op);

/* Whether it feeds the next operator and computes nothing. */
bool op_is_data(const struct op *op);

/* Whether it exchanges data with other devices, and changes its inputs. */
bool op_is_collective(const struct op *op);

/* The name of the operator that a call runs on the device. */
const char *call_kernel(const struct op *call);

enum { MAX_MODEL_NAME = 40 };

void graph_model_name(uint64_t model, char out[MAX_MODEL_NAME]);
