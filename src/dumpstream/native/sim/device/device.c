#include "device/device.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "api/runtime.h"
#include "device/debugging.h"
#include "device/delivery.h"
#include "device/record.h"
#include "device/thread.h"
#include "flow/flow.h"
#include "prof/prof.h"

enum { SECOND_NS = 1000000000 };

/* One start: the operators of some steps, which the threads share. */
struct run {
    struct dssim_workload workload;
    struct dump_config *models; /* what operators of models must dump, or NULL */
    struct dump_config *calls;  /* what calls of single operators must dump, or NULL */
    struct exception_dump exception;
    struct record *record; /* or NULL */
    uint64_t first_step;
    uint64_t ops;
    _Atomic uint64_t next_op;
    _Atomic uint64_t sent_files;
    atomic_bool stopping;
    pthread_t threads[MAX_DEVICE_THREADS];
    unsigned started;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle;    /* `working` reached 0 */
static pthread_cond_t unpaced; /* chunks need not wait for their turn any more */
static struct run *current;    /* kept until its threads are joined */
static unsigned working;       /* threads of `current` that have not finished */
static uint64_t next_step;     /* of the workload */
static bool stopped;           /* until a workload is loaded */
static uint64_t last_files;    /* of the previous run */
static uint64_t due_ns;        /* when the next chunk may go, if paced */
static struct dssim_workload workload;
static bool loaded;                  /* the models are loaded, ... */
static struct dump_order load_order; /* ... and must dump this */

/* Waits until a chunk may go at the rate of the workload. */
static void pace(struct run *run, uint64_t bytes) {
    struct timespec now;
    if (run->workload.rate == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
    HOLD(&lock);
    due_ns = due_ns < now_ns ? now_ns : due_ns;
    due_ns += (uint64_t)((double)bytes * 1e9 / (double)run->workload.rate);
    struct timespec turn = {.tv_sec = (time_t)(due_ns / SECOND_NS), .tv_nsec = (long)(due_ns % SECOND_NS)};
    while (!atomic_load(&run->stopping) && pthread_cond_timedwait(&unpaced, &lock, &turn) == 0)
        ;
}

static bool send_chunk(struct run *run, const struct delivery *delivery, uint64_t chunk) {
    const struct dump_file *file = delivery->file;
    struct slice slice = delivery_slice(delivery, chunk);
    struct message *message = message_new(file->name, slice.bytes);
    if (message == NULL)
        return false;
    message->statistics = file->text.by_aicpu ? 0 : file->text.selection;
    message->chunk.isLastChunk = slice.last;
    if (delivery->placed)
        message->chunk.offset = (int64_t)slice.offset;
    dump_file_read(file, slice.offset, slice.bytes, message->chunk.dataBuf);
    pace(run, slice.bytes);
    return record_push(run->record, message);
}

static bool send_file(struct run *run, const char *dump_path, const struct planned *planned) {
    struct dump_file file;
    struct delivery delivery;
    if (dump_file_plan(&file, dump_path, planned) != 0)
        return false;
    bool sent = delivery_plan(&delivery, &file, run->workload.slice_bytes) == 0;
    for (uint64_t chunk = 0; sent && chunk < delivery.chunks; chunk++)
        sent = send_chunk(run, &delivery, chunk);
    delivery_free(&delivery);
    if (sent) {
        atomic_fetch_add(&run->sent_files, 1);
        atomic_fetch_add(&counters.files, 1);
    }
    return sent;
}

/* Writes an exception dump if the operator fails. As with CANN, it is lost if the disk is full, it is a brief
 * one if the device does not have the mode that a detailed one needs, and a detailed one ends the process. */
static void write_exception(const struct run *run, const struct op *op, uint64_t step) {
    struct exception_dump dump = run->exception;
    if (dump.scene == SCENE_NONE || !(op_faults(op, step) & 1u << FAULT_FAILS))
        return;
    if (dump.scene == SCENE_DETAIL && !debugging_has(run->workload.device_id))
        dump.scene = SCENE_BRIEF;
    if (exception_write(&dump, op, step) == 0)
        atomic_fetch_add(&counters.exceptions, 1);
    else
        atomic_fetch_add(&counters.lost, 1);
    if (dump.scene == SCENE_DETAIL && run->workload.after_detail)
        raise(SIGKILL);
}

static bool send_files(struct run *run, const struct op *op, uint64_t step) {
    const struct dump_config *config = op->is_call ? run->calls : run->models;
    struct planned planned;
    write_exception(run, op, step);
    if (config == NULL || run->record == NULL)
        return true;
    for (uint32_t place = 0; plan_file(config, op, step, place, &planned); place++)
        if (!send_file(run, config->dump_path, &planned))
            return false;
    return true;
}

/* Sends what comes after the operator with this number, counted from the first step of the run on. */
static bool run_op(struct run *run, uint64_t count) {
    uint64_t per_step = dssim_ops_per_step(&run->workload);
    uint64_t step = run->first_step + count / per_step;
    struct op op = graph_op(&run->workload, count % per_step);
    if (!flow_acquire(&run->workload, step, &op.values))
        return false;
    bool sent = send_files(run, &op, step);
    flow_release(op.values);
    return sent;
}

static void *device_main(void *argument) {
    struct run *run = argument;
    while (!atomic_load(&run->stopping)) {
        uint64_t count = atomic_fetch_add(&run->next_op, 1);
        if (count >= run->ops || !run_op(run, count))
            break;
    }
    HOLD(&lock);
    if (--working == 0)
        pthread_cond_broadcast(&idle);
    return NULL;
}

static void free_run(struct run *run) {
    if (run->record != NULL)
        record_release(run->record);
    config_release(run->models);
    config_release(run->calls);
    free(run);
}

/* Waits until no thread works, and cleans up after the run. The caller holds the lock. */
static void wait_until_idle(void) {
    while (working > 0)
        pthread_cond_wait(&idle, &lock);
    if (current == NULL)
        return;
    for (unsigned i = 0; i < current->started; i++)
        pthread_join(current->threads[i], NULL);
    last_files = atomic_load(&current->sent_files);
    free_run(current);
    current = NULL;
}

/* Waits until no thread works, then unloads the models. The caller holds the lock. */
static void unload(void) {
    wait_until_idle();
    config_release(load_order.config);
    load_order = (struct dump_order){.config = NULL};
    loaded = false;
}

void dssim_load(const struct dssim_workload *wanted) {
    HOLD(&lock);
    unload();
    flow_close(&workload);
    workload = *wanted;
    flow_share(&workload);
    next_step = 0;
    stopped = false;
    record_load(wanted);
    prof_load(wanted);
}

void dssim_load_models(void) {
    struct dump_order order = runtime_dump_order();
    HOLD(&lock);
    unload();
    load_order = order;
    loaded = true;
}

void dssim_unload_models(void) {
    HOLD(&lock);
    unload();
}

/* Returns what loaded models must still dump, or what newly loaded ones must dump. The caller releases it. */
static struct dump_config *order_for_models(const struct dump_order *now) {
    if (!loaded)
        return config_hold(now->config);
    return load_order.dump == now->dump ? config_hold(load_order.config) : NULL;
}

/* Returns the run for the next steps. NULL: there is nothing to dump, or there is no memory,
 * and then *error is set. */
static struct run *plan_run(uint64_t steps, int *error) {
    struct dump_order now = runtime_dump_order();
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        config_release(now.config);
        *error = -ENOMEM;
        return NULL;
    }
    run->workload = workload;
    run->calls = now.config;
    run->models = order_for_models(&now);
    run->exception = now.exception;
    run->record = record_acquire();
    run->first_step = next_step;
    run->ops = steps * dssim_ops_per_step(&workload);
    bool sends = run->record != NULL && (config_dumps(run->models) || config_dumps(run->calls));
    if (sends || run->exception.scene != SCENE_NONE)
        return run;
    free_run(run);
    return NULL;
}

/* Starts the threads. If only some of them start, these do all the work. */
static int launch(struct run *run) {
    int error = 0;
    current = run;
    for (uint64_t i = 0; i < run->workload.device_threads && error == 0; i++) {
        error = thread_start(&run->threads[i], "dssim-device", device_main, run);
        if (error == 0) {
            run->started++;
            working++;
        }
    }
    return run->started > 0 ? 0 : error;
}

int dssim_start(uint64_t steps) {
    int error = 0;
    HOLD(&lock);
    wait_until_idle();
    last_files = 0;
    if (stopped)
        return 0;
    struct run *run = plan_run(steps, &error);
    next_step += steps;
    return run != NULL ? launch(run) : error;
}

uint64_t device_wait(void) {
    HOLD(&lock);
    wait_until_idle();
    return last_files;
}

uint64_t dssim_run(uint64_t steps) {
    return dssim_start(steps) == 0 ? device_wait() : 0;
}

void dssim_stop(void) {
    HOLD(&lock);
    stopped = true;
    if (current != NULL)
        atomic_store(&current->stopping, true);
    pthread_cond_broadcast(&unpaced);
}

/* Pacing follows the monotonic clock, which a static initialiser cannot choose. */
static void init_conditions(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&unpaced, &monotonic);
    pthread_cond_init(&idle, NULL);
    pthread_condattr_destroy(&monotonic);
}

/* A forked child has no device threads, and a thread that held the lock is gone. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    init_conditions();
    current = NULL;
    working = 0;
    flow_after_fork(&workload);
}

__attribute__((constructor)) static void prepare(void) {
    init_conditions();
    workload_set_defaults(&workload);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
