/* The values that aclprofSetConfig takes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "prof/abi.h"

enum { MAX_SETTING = 256 };

struct prof_settings {
    char value[ACL_PROF_ARGS_MAX][MAX_SETTING + 1]; /* by aclprofConfigType; empty if not set */
};

/* Sets one of them if the value is one that CANN takes; both must be in range. */
bool prof_settings_apply(struct prof_settings *settings, aclprofConfigType type, const char *value);

/* Writes them as members of a JSON object, each with a comma before it, and
 * returns the length; too long ones are left out. */
size_t prof_settings_render(const struct prof_settings *settings, char *out, size_t out_bytes);
