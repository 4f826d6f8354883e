#include "api/runtime.h"

#include "api/sim.h"
#include "device/debugging.h"
#include "device/device.h"
#include "device/disk.h"
#include "device/record.h"
#include "device/thread.h"
#include "prof/prof.h"

/* The dump functions hold it from begin to end, also while they wait for the callback. As in
 * CANN, a callback that calls one of them waits for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    uint64_t references;   /* aclInit calls; 0: not initialised */
    bool dump_started;     /* by aclmdlInitDump */
    bool init_started;     /* the record thread, by aclInit with a configuration */
    bool configured;       /* aclInit has had a configuration, ... */
    uint64_t content_hash; /* ... of this content */
    struct dump_config *config;
    uint64_t dump; /* dumps finalised so far */
    struct exception_dump exception;
    bool by_environment; /* has switched exception dumps on, for the whole process */
} state;

static atomic_bool args_started; /* by aclopStartDumpArgs */

/* Each device has one context, known by its address. */
static char contexts[MAX_DEVICES];
static _Thread_local char *thread_context;

/* CANN reads the environment before any configuration. */
static void follow_environment(void) {
    if (state.exception.scene == SCENE_NONE)
        state.by_environment = exception_of_environment(&state.exception);
    debugging_switch(state.exception.scene == SCENE_DETAIL);
}

/* Once exception dumps are switched on, no other setting changes them. */
static void switch_exception_on(enum scene scene, const char *dump_path) {
    if (!scene_is_exception(scene) || state.exception.scene != SCENE_NONE)
        return;
    state.exception.scene = scene;
    exception_find_root(dump_path, state.exception.root);
    debugging_switch(scene == SCENE_DETAIL);
}

/* Owns the configuration from now on. Models that were loaded before keep the earlier one. */
static void set_config(struct dump_config *config) {
    config_release(state.config);
    state.config = config;
    if (config != NULL)
        switch_exception_on(config->scene, config->dump_path);
}

/* Ends the dump, also that of loaded models. record_stop then delivers what is queued. Neither detailed
 * exception dumps nor those of the environment can be ended. */
static void end_dump(void) {
    set_config(NULL);
    state.dump++;
    if (state.exception.scene != SCENE_DETAIL && !state.by_environment)
        state.exception.scene = SCENE_NONE;
}

/* Starts the record thread for the function that `started` belongs to, unless the other one has. */
static aclError start(bool *started) {
    if (!state.init_started && !state.dump_started && record_start() != 0)
        return ACL_ERROR_INTERNAL_ERROR;
    *started = true;
    return ACL_SUCCESS;
}

/* Ends the dump, and stops the record thread unless the other function needs it. */
static void stop(bool *started) {
    end_dump();
    *started = false;
    if (!state.init_started && !state.dump_started)
        record_stop(false);
}

static aclError init_with(const char *config_path) {
    struct dump_config *config;
    aclError code = config_read(config_path, &config);
    if (code != ACL_SUCCESS || config == NULL)
        return code;
    bool other = state.configured && state.content_hash != config->content_hash;
    code = other ? ACL_ERROR_INVALID_PARAM : start(&state.init_started);
    if (code != ACL_SUCCESS) {
        config_release(config);
        return code;
    }
    state.configured = true;
    state.content_hash = config->content_hash;
    prof_set_command(config->profiles);
    set_config(config);
    return ACL_SUCCESS;
}

aclError aclInit(const char *config_path) {
    HOLD(&lock);
    if (state.references > 0) {
        state.references++;
        return ACL_ERROR_REPEAT_INITIALIZE;
    }
    follow_environment();
    aclError code = config_path != NULL && *config_path ? init_with(config_path) : ACL_SUCCESS;
    if (code == ACL_SUCCESS)
        state.references = 1;
    return code;
}

static void finalize(void) {
    state.references = 0;
    prof_set_command(false);
    if (state.init_started)
        stop(&state.init_started);
}

aclError aclFinalize(void) {
    HOLD(&lock);
    if (state.references == 0)
        return ACL_ERROR_REPEAT_FINALIZE;
    finalize();
    return ACL_SUCCESS;
}

aclError aclFinalizeReference(uint64_t *references) {
    HOLD(&lock);
    aclError code = state.references == 0 ? ACL_ERROR_REPEAT_FINALIZE : ACL_SUCCESS;
    if (code == ACL_SUCCESS && --state.references == 0)
        finalize();
    if (references != NULL)
        *references = state.references;
    return code;
}

aclError aclmdlInitDump(void) {
    HOLD(&lock);
    if (state.references == 0)
        return ACL_ERROR_UNINITIALIZE;
    return state.dump_started ? ACL_ERROR_REPEAT_INITIALIZE : start(&state.dump_started);
}

/* Whether the dump may be configured or finalised. */
static aclError check_started(void) {
    if (state.references == 0)
        return ACL_ERROR_UNINITIALIZE;
    return state.dump_started ? ACL_SUCCESS : ACL_ERROR_DUMP_NOT_RUN;
}

aclError aclmdlSetDump(const char *config_path) {
    struct dump_config *config = NULL;
    HOLD(&lock);
    aclError code = check_started();
    if (code == ACL_SUCCESS)
        code = config_path != NULL ? config_read(config_path, &config) : ACL_ERROR_INVALID_PARAM;
    if (config != NULL)
        set_config(config);
    return code;
}

aclError aclmdlFinalizeDump(void) {
    HOLD(&lock);
    aclError code = check_started();
    if (code == ACL_SUCCESS)
        stop(&state.dump_started);
    return code;
}

/* CANN writes the arguments of single operators to disk. Here only the codes are simulated. */
aclError aclopStartDumpArgs(uint32_t dump_type, const char *path) {
    if (path == NULL || !*path || !(dump_type & ACL_OP_DUMP_OP_AICORE_ARGS) ||
        disk_make_directory(path, 0700) != 0)
        return ACL_ERROR_FAILURE;
    return atomic_exchange(&args_started, true) ? ACL_ERROR_FAILURE : ACL_SUCCESS;
}

/* Also succeeds if nothing was started. */
aclError aclopStopDumpArgs(uint32_t dump_type) {
    if (dump_type & ACL_OP_DUMP_OP_AICORE_ARGS)
        atomic_store(&args_started, false);
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
    if (device < 0 || device >= MAX_DEVICES)
        return ACL_ERROR_RT_INVALID_DEVICEID;
    debugging_set_device((uint32_t)device);
    thread_context = &contexts[device];
    return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t *device) {
    if (device == NULL)
        return ACL_ERROR_INVALID_PARAM;
    if (thread_context == NULL)
        return ACL_ERROR_RT_CONTEXT_NULL;
    *device = (int32_t)(thread_context - contexts);
    return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t device) {
    if (device < 0 || device >= MAX_DEVICES)
        return ACL_ERROR_RT_INVALID_DEVICEID;
    debugging_reset_device((uint32_t)device);
    if (thread_context == &contexts[device])
        thread_context = NULL;
    return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(void **context) {
    if (context == NULL)
        return ACL_ERROR_INVALID_PARAM;
    if (thread_context == NULL)
        return ACL_ERROR_RT_CONTEXT_NULL;
    *context = thread_context;
    return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(void *context) {
    char *given = context;
    if (given < contexts || given >= contexts + MAX_DEVICES)
        return ACL_ERROR_INVALID_PARAM;
    thread_context = given;
    return ACL_SUCCESS;
}

aclError aclrtSynchronizeDevice(void) {
    if (thread_context == NULL)
        return ACL_ERROR_RT_CONTEXT_NULL;
    device_wait();
    return ACL_SUCCESS;
}

struct dump_order runtime_dump_order(void) {
    HOLD(&lock);
    return (struct dump_order){
        .config = config_hold(state.config), .dump = state.dump, .exception = state.exception};
}

/* The device stops first: its threads may be waiting for space in the queue. Callbacks may run while the
 * process exits, as with CANN. */
__attribute__((destructor)) static void stop_everything(void) {
    dssim_stop();
    record_refuse();
    device_wait();
    HOLD(&lock);
    end_dump();
    if (state.init_started || state.dump_started)
        record_stop(true);
    state.init_started = state.dump_started = false;
}

void runtime_reset(void) {
    stop_everything();
    atomic_store(&args_started, false);
    acldumpUnregCallback();
    prof_reset();
    debugging_reset_all();
    thread_context = NULL;
    HOLD(&lock);
    state.references = 0;
    state.configured = false;
    state.exception = (struct exception_dump){.scene = SCENE_NONE};
    state.by_environment = false;
}

/* As in CANN, a forked child has no dump and must initialise it again. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    end_dump();
    state.init_started = state.dump_started = false;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
