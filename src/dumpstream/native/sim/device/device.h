/* The device side of a dump: threads that make the chunks of a workload. sim.h declares the rest. */
#pragma once

#include "workload/workload.h"

/* Waits for the device, then changes what it runs, from step 0 on, and unloads the models. */
void device_load(const struct dssim_workload *workload);

/* Waits until the device has handed over everything. Returns the number of files of the last start. */
uint64_t device_wait(void);
