/* The device side of a dump: threads that make the chunks of a workload. */
#ifndef DSSIM_DEVICE_H
#define DSSIM_DEVICE_H

#include <stdatomic.h>
#include <stdint.h>

#include "workload/workload.h"

/* Waits for the device, then changes what it runs, from step 0 on; no models
 * are loaded. */
void device_load(const struct dssim_workload *workload);

/* Loads the models now: what they dump is what the configuration in force now
 * says, until the dump is finalised, and not what a later one says. A start
 * without loaded models loads them for itself. */
void device_load_models(void);
void device_unload_models(void);

/* Begins further steps once those begun are done. Returns 0 or -errno. */
int device_start(uint64_t steps);

/* Waits until the device has handed over everything. Returns the number of
 * files of the last start. */
uint64_t device_wait(void);

/* Lets the threads finish the files they are in, unpaced; no start has an
 * effect until the next device_load. */
void device_stop(void);

struct device_counters {
    _Atomic uint64_t files;      /* sent to their end */
    _Atomic uint64_t exceptions; /* files of exception dumps */
};

extern struct device_counters device_counters;

#endif
