/* The values that aclprofSetConfig accepts. */
#pragma once

#include <stdbool.h>

#include "prof/abi.h"

enum { MAX_SETTING = 256 };

struct prof_settings {
    char value[ACL_PROF_ARGS_MAX][MAX_SETTING + 1]; /* by aclprofConfigType; empty if not set */
};

/* Whether CANN accepts a value. The type must be in range. */
bool prof_setting_is_valid(aclprofConfigType type, const char *value);

/* Writes the values as members of a JSON object, each after a comma. Members that do not fit
 * are left out. Returns the length. */
size_t prof_settings_render(const struct prof_settings *settings, char *out, size_t out_bytes);
