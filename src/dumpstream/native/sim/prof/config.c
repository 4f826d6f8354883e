#include "prof/config.h"

#include <stdlib.h>

#include "api/codes.h"

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
    if ((device_count == 0 && !(data_types & ACL_PROF_MSPROFTX)) || !are_valid(devices, device_count))
        return NULL;
    aclprofConfig *config = malloc(sizeof *config);
    if (config == NULL)
        return NULL;
    *config = (aclprofConfig){.device_count = device_count, .metrics = metrics, .data_types = data_types};
    for (uint32_t i = 0; i < device_count; i++)
        config->devices[i] = devices[i];
    return config;
}

static aclError destroy(const void *config) {
    free((void *)config);
    return config != NULL ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
}

aclError aclprofDestroyConfig(const aclprofConfig *config) {
    return destroy(config);
}

aclprofSubscribeConfig *aclprofCreateSubscribeConfig(int8_t with_times, aclprofAicoreMetrics metrics,
                                                     void *descriptor) {
    aclprofSubscribeConfig *config = malloc(sizeof *config);
    if (config != NULL)
        *config = (aclprofSubscribeConfig){with_times != 0, metrics, descriptor};
    return config;
}

aclError aclprofDestroySubscribeConfig(const aclprofSubscribeConfig *config) {
    return destroy(config);
}
