/* What a program tells profiling: the values that aclprofSetConfig accepts, and what aclprofStart and
 * aclprofModelSubscribe must collect. */
#pragma once

#include <stdbool.h>

#include "prof/abi.h"

enum { MAX_SETTING = 256, MAX_PROF_DEVICES = 64 };

struct prof_settings {
    char value[ACL_PROF_ARGS_MAX][MAX_SETTING + 1]; /* by aclprofConfigType; empty if not set */
};

/* Whether CANN accepts a value. The type must be in range. */
bool prof_setting_is_valid(aclprofConfigType type, const char *value);

/* Writes the values as members of a JSON object, each after a comma. Members that do not fit
 * are left out. Returns the length. */
size_t prof_settings_render(const struct prof_settings *settings, char *out, size_t out_bytes);

struct aclprofConfig {
    uint32_t devices[MAX_PROF_DEVICES];
    uint32_t device_count;
    aclprofAicoreMetrics metrics;
    uint64_t data_types;
};

struct aclprofSubscribeConfig {
    bool with_times;
    aclprofAicoreMetrics metrics;
    const void *descriptor;
};
