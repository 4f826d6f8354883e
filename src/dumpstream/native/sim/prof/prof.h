/* The state behind CANN's profiling entry points. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "api/sim.h"

/* Takes the models, the device and the behaviour of what runs from now on. */
void prof_load(const struct dssim_workload *workload);

/* Whether an acl.json switches profiling on. */
bool prof_is_configured(const char *content, size_t length);

/* Profiles by aclInit's configuration, or no longer. */
void prof_set_command(bool on);

/* Ends everything and forgets it. */
void prof_reset(void);
