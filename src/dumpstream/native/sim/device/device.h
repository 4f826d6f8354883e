/* The device side of a dump: threads that make the chunks of a workload. sim.h declares the rest. */
#pragma once

#include <stdint.h>

/* Waits until the device has handed over everything. Returns the number of files of the last start. */
uint64_t device_wait(void);
