/* The values of a data flow, step by step. Steps are computed as they are asked for: going on is cheap, and
 * going back begins at the first step again. Every function may be called from any thread. */
#pragma once

#include "flow/program.h"
#include "workload/graph.h"

/* All values of one step on the workload's rank; none of them is overwritten. */
struct flow_step;

/* Makes the data flow of a workload that asks for one. Returns what is wrong with it, or NULL. */
const char *flow_open(struct dssim_workload *workload);

/* Called for a copy of a workload, which is closed by itself. */
void flow_share(const struct dssim_workload *workload);
void flow_close(struct dssim_workload *workload);

/* Called in a forked child, in which no other thread works. */
void flow_after_fork(struct dssim_workload *workload);

/* Returns false if there is no memory. The caller releases the values; without a data flow they are NULL. */
bool flow_acquire(const struct dssim_workload *workload, uint64_t step, const struct flow_step **values);
void flow_release(const struct flow_step *values);

const struct flow_program *flow_program(const struct dssim_workload *workload);
const struct flow_op *flow_op(const struct op *op);

/* An input or output of an operator that has values: `before` it ran, or after. An operator that works in
 * place has changed its input then. */
struct tensor flow_tensor(const struct op *op, uint32_t place, bool before);

/* Whether an output has an infinity or NaN. */
bool flow_overflows(const struct op *op);
