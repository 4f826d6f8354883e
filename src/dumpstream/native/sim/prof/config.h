/* What aclprofStart and aclprofModelSubscribe are told to collect. */
#pragma once

#include <stdbool.h>

#include "prof/abi.h"

enum { MAX_PROF_DEVICES = 64 };

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

/* Returns ACL_SUCCESS, or the code with which CANN refuses such a configuration, which may be NULL. */
aclError prof_config_check(const aclprofConfig *config);
