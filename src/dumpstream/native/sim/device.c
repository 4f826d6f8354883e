#include "device.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "delivery.h"
#include "dumpfile.h"
#include "record.h"
#include "runtime.h"
#include "stats.h"
#include "thread.h"

/* One start: the files of some steps, shared among the threads. */
struct run {
    struct dssim_workload workload;
    struct dump_config config;
    struct record *record;
    uint64_t first_step;
    uint64_t files;
    _Atomic uint64_t next_file;
    _Atomic uint64_t sent_files;
    atomic_bool stopping;
    pthread_t threads[MAX_DEVICE_THREADS];
    unsigned started;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle;  /* `working` reached 0 */
static pthread_cond_t hurry; /* no more pacing */
static struct run *current;  /* kept until its threads are joined */
static unsigned working;     /* threads of `current` that have not finished */
static uint64_t next_step;   /* of the workload */
static bool stopped;         /* until a workload is loaded */
static uint64_t last_files;  /* of the run before */
static struct timespec due;  /* when the next chunk may go, if paced */
static struct dssim_workload workload;
static _Atomic uint64_t all_files;

static void add_ns(struct timespec *when, uint64_t ns) {
    ns += (uint64_t)when->tv_nsec;
    when->tv_sec += (time_t)(ns / 1000000000);
    when->tv_nsec = (long)(ns % 1000000000);
}

static bool is_before(const struct timespec *left, const struct timespec *right) {
    return left->tv_sec != right->tv_sec ? left->tv_sec < right->tv_sec : left->tv_nsec < right->tv_nsec;
}

/* Waits for the chunk's turn at the workload's rate. */
static void pace(struct run *run, uint64_t bytes) {
    struct timespec now, turn;
    if (run->workload.rate == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    if (is_before(&due, &now))
        due = now;
    add_ns(&due, (uint64_t)((double)bytes * 1e9 / (double)run->workload.rate));
    turn = due;
    while (!atomic_load(&run->stopping) && pthread_cond_timedwait(&hurry, &lock, &turn) == 0)
        ;
    pthread_mutex_unlock(&lock);
}

static bool send_chunk(struct run *run, const struct dump_file *file, const struct delivery *delivery,
                       uint64_t chunk) {
    struct slice slice = delivery_slice(delivery, chunk);
    struct message *message = message_new(file->name, slice.bytes);
    if (message == NULL)
        return false;
    message->chunk.isLastChunk = slice.last;
    if (delivery->placed)
        message->chunk.offset = (int64_t)slice.offset;
    dump_file_read(file, slice.offset, slice.bytes, message->chunk.dataBuf);
    pace(run, slice.bytes);
    return record_push(run->record, message);
}

static bool send_tensors(struct run *run, const struct dump_file *file) {
    struct delivery delivery;
    bool sent = delivery_plan(&delivery, file, run->workload.slice_bytes) == 0;
    for (uint64_t chunk = 0; sent && chunk < delivery.chunks; chunk++)
        sent = send_chunk(run, file, &delivery, chunk);
    delivery_free(&delivery);
    return sent;
}

static bool send_stats(struct run *run, const struct dump_file *file) {
    for (uint32_t i = 0; i < file->data.tensors; i++) {
        char row[STATS_ROW_BYTES];
        size_t length = stats_row(file, i, row);
        struct message *message = message_new(file->name, (uint32_t)length);
        if (message == NULL)
            return false;
        message->is_stats = true;
        message->chunk.isLastChunk = 1;
        memcpy(message->chunk.dataBuf, row, length);
        pace(run, length);
        if (!record_push(run->record, message))
            return false;
    }
    return true;
}

static bool send_file(struct run *run, uint64_t number) {
    uint64_t per_step = dssim_files_per_step(&run->workload);
    struct dump_file file;
    if (dump_file_plan(&file, &run->workload, run->config.dump_path, run->first_step + number / per_step,
                       number % per_step) != 0)
        return false;
    return dump_file_has(&file, FAULT_STATS_TEXT) ? send_stats(run, &file) : send_tensors(run, &file);
}

static void *device_main(void *argument) {
    struct run *run = argument;
    while (!atomic_load(&run->stopping)) {
        uint64_t number = atomic_fetch_add(&run->next_file, 1);
        if (number >= run->files || !send_file(run, number))
            break;
        atomic_fetch_add(&run->sent_files, 1);
        atomic_fetch_add(&all_files, 1);
    }
    pthread_mutex_lock(&lock);
    if (--working == 0)
        pthread_cond_broadcast(&idle);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Waits, with the lock held, until no thread works, and clears up after the run. */
static void wait_until_idle(void) {
    while (working > 0)
        pthread_cond_wait(&idle, &lock);
    if (current == NULL)
        return;
    for (unsigned i = 0; i < current->started; i++)
        pthread_join(current->threads[i], NULL);
    record_release(current->record);
    last_files = atomic_load(&current->sent_files);
    free(current);
    current = NULL;
}

void device_load(const struct dssim_workload *loaded) {
    pthread_mutex_lock(&lock);
    wait_until_idle();
    workload = *loaded;
    next_step = 0;
    stopped = false;
    record_set_limit(loaded->queue_bytes);
    pthread_mutex_unlock(&lock);
}

/* Returns the run for the next steps, or NULL if nothing is to be dumped or
 * memory is short (then *error is set). */
static struct run *plan_run(uint64_t steps, int *error) {
    struct dump_config config;
    struct record *record = runtime_dump_target(&config);
    struct run *run;
    if (record == NULL)
        return NULL;
    run = calloc(1, sizeof *run);
    if (run == NULL) {
        record_release(record);
        *error = -ENOMEM;
        return NULL;
    }
    run->workload = workload;
    run->config = config;
    run->record = record;
    run->first_step = next_step;
    run->files = steps * dssim_files_per_step(&workload);
    return run;
}

/* Starts the threads; fewer than asked for do the same work. */
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

int device_start(uint64_t steps) {
    struct run *run;
    int error = 0;
    pthread_mutex_lock(&lock);
    wait_until_idle();
    last_files = 0;
    if (!stopped) {
        run = plan_run(steps, &error);
        next_step += steps;
        if (run != NULL)
            error = launch(run);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

uint64_t device_wait(void) {
    uint64_t files;
    pthread_mutex_lock(&lock);
    wait_until_idle();
    files = last_files;
    pthread_mutex_unlock(&lock);
    return files;
}

void device_stop(void) {
    pthread_mutex_lock(&lock);
    stopped = true;
    if (current != NULL)
        atomic_store(&current->stopping, true);
    pthread_cond_broadcast(&hurry);
    pthread_mutex_unlock(&lock);
}

uint64_t device_files(void) {
    return atomic_load(&all_files);
}

void device_reset_files(void) {
    atomic_store(&all_files, 0);
}

/* Pacing follows the monotonic clock, which a static initialiser cannot choose. */
static void init_conditions(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&hurry, &monotonic);
    pthread_cond_init(&idle, NULL);
    pthread_condattr_destroy(&monotonic);
}

/* A forked child has no device threads, and whoever held the lock is not there. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    init_conditions();
    current = NULL;
    working = 0;
}

__attribute__((constructor)) static void prepare(void) {
    init_conditions();
    workload_set_defaults(&workload);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
