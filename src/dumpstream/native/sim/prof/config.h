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
