/* The state behind CANN's profiling functions. */
#pragma once

#include <stdbool.h>

#include "api/sim.h"

/* Takes the models, the device and the behaviour from the workload that runs from now on. */
void prof_load(const struct dssim_workload *workload);

/* Begins or ends profiling by the configuration of aclInit. */
void prof_set_command(bool on);

/* Ends everything and resets all state. A workload must be loaded afterwards. */
void prof_reset(void);
