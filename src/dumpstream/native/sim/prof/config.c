#include "prof/config.h"

#include <stdlib.h>

#include "api/codes.h"

#define SUPPORTED_TYPES                                                                                      \
    (ACL_PROF_ACL_API | ACL_PROF_TASK_TIME | ACL_PROF_AICORE_METRICS | ACL_PROF_AICPU | ACL_PROF_L2CACHE |   \
     ACL_PROF_HCCL_TRACE | ACL_PROF_TRAINING_TRACE | ACL_PROF_MSPROFTX | ACL_PROF_RUNTIME_API |              \
     ACL_PROF_GE_API_L0 | ACL_PROF_TASK_TIME_L0 | ACL_PROF_TASK_MEMORY | ACL_PROF_TASK_TIME_L2 |             \
     ACL_PROF_OP_ATTR | ACL_PROF_TASK_TIME_L3 | ACL_PROF_GE_API_L1 | ACL_PROF_API_STATS)

aclError prof_config_check(const aclprofConfig *config) {
    if (config == NULL || config->data_types == 0)
        return ACL_ERROR_INVALID_PARAM;
    return config->data_types & ~SUPPORTED_TYPES ? ACL_ERROR_PROF_MODULES_UNSUPPORTED : ACL_SUCCESS;
}

static bool are_valid(const uint32_t *devices, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (devices[i] >= MAX_PROF_DEVICES)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (devices[j] == devices[i])
                return false;
    }
    return true;
}

aclprofConfig *aclprofCreateConfig(uint32_t *devices, uint32_t device_count, aclprofAicoreMetrics metrics,
                                   const aclprofAicoreEvents *events, uint64_t data_types) {
    if (events != NULL || device_count > MAX_PROF_DEVICES || (devices == NULL && device_count > 0))
        return NULL;
    if (device_count == 0 && !(data_types & ACL_PROF_MSPROFTX))
        return NULL;
    if (!are_valid(devices, device_count))
        return NULL;
    aclprofConfig *config = calloc(1, sizeof *config);
    if (config == NULL)
        return NULL;
    for (uint32_t i = 0; i < device_count; i++)
        config->devices[i] = devices[i];
    config->device_count = device_count;
    config->metrics = metrics;
    config->data_types = data_types;
    return config;
}

aclError aclprofDestroyConfig(const aclprofConfig *config) {
    if (config == NULL)
        return ACL_ERROR_INVALID_PARAM;
    free((void *)config);
    return ACL_SUCCESS;
}

aclprofSubscribeConfig *aclprofCreateSubscribeConfig(int8_t with_times, aclprofAicoreMetrics metrics,
                                                     void *descriptor) {
    aclprofSubscribeConfig *config = malloc(sizeof *config);
    if (config != NULL)
        *config = (aclprofSubscribeConfig){with_times != 0, metrics, descriptor};
    return config;
}

aclError aclprofDestroySubscribeConfig(const aclprofSubscribeConfig *config) {
    if (config == NULL)
        return ACL_ERROR_INVALID_PARAM;
    free((void *)config);
    return ACL_SUCCESS;
}
