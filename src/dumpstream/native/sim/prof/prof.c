#include "prof/prof.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/codes.h"
#include "device/disk.h"
#include "device/thread.h"
#include "prof/output.h"
#include "workload/workload.h"

enum { MAX_SUBSCRIPTIONS = 1024, OPERATOR_BYTES = 128 };

enum mode { MODE_OFF, MODE_COMMAND, MODE_API, MODE_SUBSCRIBE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    enum mode mode;
    bool lenient; /* as CANN's master: a start needs no init, and ending what never began succeeds */
    uint64_t models;
    uint32_t device; /* in use; the default for what is profiled */
    char path[MAX_PROF_PATH];
    struct prof_settings settings;
    uint64_t starts;
    /* A start sets it, and only a stop clears it. While it is set, a lenient start only
     * compares the data types, for any devices. */
    bool in_force;
    bool running[MAX_PROF_DEVICES];
    struct prof_output output[MAX_PROF_DEVICES]; /* of the devices that run */
    uint32_t subscribed[MAX_SUBSCRIPTIONS];
    uint32_t subscriptions;
} state;

/* Whether the functions of `wanted` may be called. Those of MODE_SUBSCRIBE begin it themselves. */
static aclError check_mode(enum mode wanted) {
    if (state.mode == wanted)
        return ACL_SUCCESS;
    if (state.mode == MODE_OFF)
        return wanted == MODE_API ? ACL_ERROR_PROF_NOT_RUN : ACL_SUCCESS;
    return state.mode == MODE_COMMAND ? ACL_ERROR_PROF_ALREADY_RUN : ACL_ERROR_PROF_API_CONFLICT;
}

static aclError begin_at(const char *path) {
    if (disk_make_directory(path, 0750) != 0 || access(path, X_OK) != 0)
        return ACL_ERROR_INVALID_FILE;
    strcpy(state.path, path);
    state.mode = MODE_API;
    return ACL_SUCCESS;
}

aclError aclprofInit(const char *path, size_t length) {
    const char *mode = getenv("PROFILING_MODE");
    if (path == NULL || length == 0 || length >= MAX_PROF_PATH || strlen(path) != length)
        return ACL_ERROR_INVALID_PARAM;
    HOLD(&lock);
    if (mode != NULL && strcmp(mode, "dynamic") == 0)
        return ACL_ERROR_FEATURE_UNSUPPORTED;
    if (state.mode == MODE_API)
        return ACL_ERROR_REPEAT_INITIALIZE;
    return state.mode == MODE_OFF ? begin_at(path) : check_mode(MODE_API);
}

/* Returns whether all was written. */
static bool finish(uint32_t device) {
    if (!state.running[device])
        return true;
    state.running[device] = false;
    return prof_output_end(&state.output[device], &state.settings);
}

static aclError finish_all(void) {
    bool whole = true;
    for (uint32_t device = 0; device < MAX_PROF_DEVICES; device++)
        whole = finish(device) && whole;
    return whole ? ACL_SUCCESS : ACL_ERROR_PROFILING_FAILURE;
}

aclError aclprofFinalize(void) {
    HOLD(&lock);
    aclError code = check_mode(MODE_API);
    if (code != ACL_SUCCESS)
        return code == ACL_ERROR_PROF_NOT_RUN && state.lenient ? ACL_SUCCESS : code;
    code = finish_all();
    state.mode = MODE_OFF;
    state.settings = (struct prof_settings){0};
    if (!state.lenient)
        state.in_force = false;
    return code;
}

aclError aclprofSetConfig(aclprofConfigType type, const char *value, size_t length) {
    if (type <= ACL_PROF_ARGS_MIN || type >= ACL_PROF_ARGS_MAX || value == NULL || length > MAX_SETTING ||
        strlen(value) != length)
        return ACL_ERROR_INVALID_PARAM;
    HOLD(&lock);
    if (state.mode == MODE_OFF && !state.lenient)
        return ACL_ERROR_UNINITIALIZE;
    if (!prof_setting_is_valid(type, value))
        return type == ACL_PROF_NTS_METRICS ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_INVALID_PROFILING_CONFIG;
    strcpy(state.settings.value[type], value);
    return ACL_SUCCESS;
}

static aclError check(const aclprofConfig *config) {
    if (config == NULL || config->data_types == 0)
        return ACL_ERROR_INVALID_PARAM;
    if (config->data_types & ~ACL_PROF_ALL)
        return ACL_ERROR_PROF_MODULES_UNSUPPORTED;
    return check_mode(MODE_API);
}

/* Skips devices that do not run. */
static aclError compare_types(const aclprofConfig *config) {
    for (uint32_t i = 0; i < config->device_count; i++) {
        uint32_t device = config->devices[i];
        if (state.running[device] && state.output[device].data_types != config->data_types)
            return ACL_ERROR_INVALID_PROFILING_CONFIG;
    }
    return ACL_SUCCESS;
}

static aclError begin_devices(const aclprofConfig *config) {
    struct prof_output output = {
        .path = state.path, .data_types = config->data_types, .metrics = config->metrics};
    for (uint32_t i = 0; i < config->device_count; i++)
        if (state.running[config->devices[i]])
            return ACL_ERROR_PROF_ALREADY_RUN;
    prof_output_name(++state.starts, output.name);
    for (uint32_t i = 0; i < config->device_count; i++) {
        output.device = config->devices[i];
        if (!prof_output_begin(&output))
            return ACL_ERROR_INVALID_FILE;
        state.running[output.device] = true;
        state.output[output.device] = output;
    }
    state.in_force = true;
    return ACL_SUCCESS;
}

aclError aclprofStart(const aclprofConfig *config) {
    aclprofConfig standard = {.device_count = 1,
                              .metrics = ACL_AICORE_PIPE_UTILIZATION,
                              .data_types = ACL_PROF_TASK_TIME | ACL_PROF_AICORE_METRICS};
    const char *path = state.settings.value[ACL_PROF_PATH];
    HOLD(&lock);
    standard.devices[0] = state.device;
    if (config == NULL && state.lenient)
        config = &standard;
    aclError code = check(config);
    if (code == ACL_ERROR_PROF_NOT_RUN && state.lenient)
        code = begin_at(*path ? path : "./");
    if (code != ACL_SUCCESS)
        return code;
    return state.lenient && state.in_force ? compare_types(config) : begin_devices(config);
}

static aclError stop_strictly(const aclprofConfig *config) {
    aclError code = check(config);
    if (code != ACL_SUCCESS)
        return code;
    for (uint32_t i = 0; i < config->device_count; i++)
        if (!state.running[config->devices[i]])
            return ACL_ERROR_PROF_NOT_RUN;
    code = compare_types(config);
    for (uint32_t i = 0; i < config->device_count && code == ACL_SUCCESS; i++)
        code = finish(config->devices[i]) ? ACL_SUCCESS : ACL_ERROR_PROFILING_FAILURE;
    return code;
}

/* Stops every device, whatever the configuration names. */
static aclError stop_leniently(const aclprofConfig *config) {
    if (state.mode == MODE_OFF)
        return ACL_SUCCESS;
    aclError code = config == NULL ? check_mode(MODE_API) : check(config);
    if (code == ACL_SUCCESS && config != NULL)
        code = compare_types(config);
    if (code != ACL_SUCCESS)
        return code;
    state.in_force = false;
    return finish_all();
}

aclError aclprofStop(const aclprofConfig *config) {
    HOLD(&lock);
    return state.lenient ? stop_leniently(config) : stop_strictly(config);
}

/* The place of the model's subscription; the number of subscriptions if it has none. */
static uint32_t find_subscription(uint32_t model) {
    uint32_t i = 0;
    while (i < state.subscriptions && state.subscribed[i] != model)
        i++;
    return i;
}

aclError aclprofModelSubscribe(uint32_t model, const aclprofSubscribeConfig *config) {
    if (config == NULL)
        return ACL_ERROR_INVALID_PARAM;
    HOLD(&lock);
    aclError code = check_mode(MODE_SUBSCRIBE);
    if (model >= state.models)
        return ACL_ERROR_INVALID_MODEL_ID;
    if (code != ACL_SUCCESS)
        return code;
    if (config->descriptor == NULL || (!config->with_times && config->metrics == ACL_AICORE_NONE))
        return ACL_ERROR_INVALID_PARAM;
    if (find_subscription(model) < state.subscriptions)
        return ACL_ERROR_PROF_REPEAT_SUBSCRIBE;
    if (state.subscriptions == MAX_SUBSCRIPTIONS)
        return ACL_ERROR_PROFILING_FAILURE;
    state.subscribed[state.subscriptions++] = model;
    state.mode = MODE_SUBSCRIBE;
    return ACL_SUCCESS;
}

aclError aclprofModelUnSubscribe(uint32_t model) {
    HOLD(&lock);
    aclError code = model < state.models ? check_mode(MODE_SUBSCRIBE) : ACL_ERROR_INVALID_MODEL_ID;
    uint32_t place = find_subscription(model);
    if (code != ACL_SUCCESS)
        return code;
    if (place == state.subscriptions)
        return ACL_ERROR_INVALID_MODEL_ID;
    state.subscribed[place] = state.subscribed[--state.subscriptions];
    if (state.subscriptions == 0)
        state.mode = MODE_OFF;
    return ACL_SUCCESS;
}

/* As in CANN, these two work in every mode of profiling. */
aclError aclprofGetOpDescSize(size_t *size) {
    if (size == NULL)
        return ACL_ERROR_INVALID_PARAM;
    *size = OPERATOR_BYTES;
    return ACL_SUCCESS;
}

aclError aclprofGetOpNum(const void *data, size_t length, uint32_t *count) {
    if (data == NULL || count == NULL || length == 0 || length % OPERATOR_BYTES != 0)
        return ACL_ERROR_INVALID_PARAM;
    *count = (uint32_t)(length / OPERATOR_BYTES);
    return ACL_SUCCESS;
}

void prof_load(const struct dssim_workload *workload) {
    HOLD(&lock);
    state.lenient = workload->cann == CANN_MASTER;
    state.models = workload->models;
    state.device = (uint32_t)workload->device_id % MAX_PROF_DEVICES;
}

void prof_set_command(bool on) {
    HOLD(&lock);
    if (on && state.mode == MODE_OFF)
        state.mode = MODE_COMMAND;
    else if (!on && state.mode == MODE_COMMAND)
        state.mode = MODE_OFF;
}

void prof_reset(void) {
    HOLD(&lock);
    finish_all();
    memset(&state, 0, sizeof state);
}
