/* The memory planner: gives every tensor an address in the device's memory. */
#pragma once

#include "flow/program.h"

enum { MEMORY_ALIGNMENT = 512 };

/* Weights and what the loader brings have addresses of their own; the rest is reused when the last reader has
 * run. Returns false if there is no memory. */
bool memory_plan(struct flow_program *program);
