/* Runs the operators of a data flow on the memory of the device, on all ranks that exchange data. */
#pragma once

#include "flow/program.h"

#define NO_STEP UINT64_MAX

struct stepping {
    struct dssim_workload *workload; /* a copy */
    const struct flow_program *program;
    uint64_t first, end; /* the ranks that are run */
    uint64_t next;       /* the step to run next; NO_STEP: begin at the first one */
    uint8_t *memory;     /* of the ranks, one after another; NULL until the first step */
};

/* Returns what is wrong, or NULL. */
const char *stepping_init(struct stepping *stepping, const struct dssim_workload *workload,
                          const struct flow_program *program);
void stepping_free(struct stepping *stepping);

/* Runs all steps up to this one, from the first one on if it has been passed. Writes the values of the step
 * on the workload's own rank to `values`. Returns false if there is no memory. */
bool stepping_reach(struct stepping *stepping, uint64_t step, uint8_t *values);
