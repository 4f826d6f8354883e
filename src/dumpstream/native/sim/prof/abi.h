/* CANN's profiling functions, as its acl_prof.h declares them. */
#pragma once

#include <dumpstream/acl_abi.h>

/* What is collected: the bits that have a meaning here, and all that acl_prof.h names. */
#define ACL_PROF_TASK_TIME UINT64_C(0x0002)
#define ACL_PROF_AICORE_METRICS UINT64_C(0x0004)
#define ACL_PROF_MSPROFTX UINT64_C(0x0080)
#define ACL_PROF_API_STATS UINT64_C(0x400000000)
#define ACL_PROF_ALL UINT64_C(0x40100fbff)

/* The simulation tells no others apart. */
typedef enum { ACL_AICORE_PIPE_UTILIZATION = 1, ACL_AICORE_NONE = 0xFF } aclprofAicoreMetrics;

typedef enum {
    ACL_PROF_ARGS_MIN = 0,
    ACL_PROF_STORAGE_LIMIT = 1,
    ACL_PROF_SYS_HARDWARE_MEM_FREQ = 3,
    ACL_PROF_LLC_MODE = 4,
    ACL_PROF_SYS_IO_FREQ = 5,
    ACL_PROF_SYS_INTERCONNECTION_FREQ = 6,
    ACL_PROF_DVPP_FREQ = 7,
    ACL_PROF_HOST_SYS = 8,
    ACL_PROF_HOST_SYS_USAGE = 9,
    ACL_PROF_HOST_SYS_USAGE_FREQ = 10,
    ACL_PROF_LOW_POWER_FREQ = 11,
    ACL_PROF_SYS_MEM_SERVICEFLOW = 12,
    ACL_PROF_SYS_CPU_FREQ = 13,
    ACL_PROF_OPTYPE = 14,
    ACL_PROF_NTS_METRICS = 15,
    ACL_PROF_PATH = 16,
    ACL_PROF_ARGS_MAX = 17,
} aclprofConfigType;

typedef struct aclprofConfig aclprofConfig;
typedef struct aclprofAicoreEvents aclprofAicoreEvents;
typedef struct aclprofSubscribeConfig aclprofSubscribeConfig;

#pragma GCC visibility push(default)

aclError aclprofInit(const char *path, size_t length);
aclError aclprofFinalize(void);
aclError aclprofStart(const aclprofConfig *config);
aclError aclprofStop(const aclprofConfig *config);
aclError aclprofSetConfig(aclprofConfigType type, const char *value, size_t length);
aclprofConfig *aclprofCreateConfig(uint32_t *devices, uint32_t device_count, aclprofAicoreMetrics metrics,
                                   const aclprofAicoreEvents *events, uint64_t data_types);
aclError aclprofDestroyConfig(const aclprofConfig *config);

/* Subscriptions deliver nothing here. Only their order and their codes are simulated. */
aclError aclprofModelSubscribe(uint32_t model, const aclprofSubscribeConfig *config);
aclError aclprofModelUnSubscribe(uint32_t model);
aclprofSubscribeConfig *aclprofCreateSubscribeConfig(int8_t with_times, aclprofAicoreMetrics metrics,
                                                     void *descriptor);
aclError aclprofDestroySubscribeConfig(const aclprofSubscribeConfig *config);
aclError aclprofGetOpDescSize(size_t *size);
aclError aclprofGetOpNum(const void *data, size_t length, uint32_t *count);

#pragma GCC visibility pop
