/* Profiling in the simulated runtime, from several threads and with every external value at
 * its limit. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/sim.h"
#include "check.h"

enum { THREADS = 4, ROUNDS = 20 };

static char path[] = "/tmp/prof_test.XXXXXX";

static void *profile_one_device(void *argument) {
    uint32_t device = *(uint32_t *)argument;
    aclprofConfig *config =
        aclprofCreateConfig(&device, 1, ACL_AICORE_PIPE_UTILIZATION, NULL, ACL_PROF_TASK_TIME);
    CHECK(config != NULL);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(aclprofStart(config) == 0);
        CHECK(aclprofStart(config) == 100042);
        CHECK(aclprofStop(config) == 0);
    }
    CHECK(aclprofDestroyConfig(config) == 0);
    return NULL;
}

static void devices_start_and_stop_side_by_side(void) {
    pthread_t threads[THREADS];
    uint32_t devices[THREADS];
    CHECK(aclprofInit(path, strlen(path)) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        devices[i] = i;
        CHECK(pthread_create(&threads[i], NULL, profile_one_device, &devices[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(aclprofFinalize() == 0);
}

/* Every setting with its greatest length, in the characters that are longest when they are escaped. */
static void the_longest_settings_are_written(void) {
    uint32_t devices[64];
    char value[257];
    aclprofConfig *config;
    memset(value, 1, sizeof value - 1);
    value[256] = '\0';
    for (uint32_t i = 0; i < 64; i++)
        devices[i] = i;
    CHECK(aclprofInit(path, strlen(path)) == 0);
    for (int type = ACL_PROF_SYS_MEM_SERVICEFLOW; type < ACL_PROF_ARGS_MAX; type++)
        CHECK((aclprofSetConfig((aclprofConfigType)type, value, 256) == 0) ==
              (type != ACL_PROF_SYS_CPU_FREQ));
    config = aclprofCreateConfig(devices, 64, ACL_AICORE_NONE, NULL, ACL_PROF_API_STATS);
    CHECK(config != NULL);
    CHECK(aclprofStart(config) == 0);
    CHECK(aclprofStop(config) == 0);
    CHECK(aclprofDestroyConfig(config) == 0);
    CHECK(aclprofFinalize() == 0);
}

static void the_longest_path_is_refused_by_the_disk_alone(void) {
    char *longest = malloc(4096);
    CHECK(longest != NULL);
    memset(longest, 'x', 4095);
    longest[4095] = '\0';
    CHECK(aclprofInit(longest, 4095) == 100003);
    free(longest);
}

static void models_are_subscribed_up_to_a_limit(void) {
    char error[128];
    int descriptor = 1;
    struct dssim_workload *workload = dssim_workload_open("models=2000\n", error, sizeof error);
    aclprofSubscribeConfig *config = aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, &descriptor);
    CHECK(workload != NULL && config != NULL);
    dssim_load(workload);
    for (uint32_t model = 0; model < 1024; model++)
        CHECK(aclprofModelSubscribe(model, config) == 0);
    CHECK(aclprofModelSubscribe(1024, config) == 500005);
    for (uint32_t model = 0; model < 1024; model++)
        CHECK(aclprofModelUnSubscribe(model) == 0);
    CHECK(aclprofDestroySubscribeConfig(config) == 0);
    dssim_workload_close(workload);
}

int main(void) {
    char command[64];
    CHECK(mkdtemp(path) != NULL);
    devices_start_and_stop_side_by_side();
    the_longest_settings_are_written();
    the_longest_path_is_refused_by_the_disk_alone();
    models_are_subscribed_up_to_a_limit();
    dssim_reset();
    snprintf(command, sizeof command, "rm -r %s", path);
    return system(command);
}
