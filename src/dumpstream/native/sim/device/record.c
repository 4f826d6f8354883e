#include "device/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/codes.h"
#include "device/disk.h"
#include "device/stats.h"
#include "device/thread.h"

/* CANN remembers the last files of statistics text. It sends the header before the text of
 * any other file. */
enum { REMEMBERED_NAMES = 10 };

struct record {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    pthread_cond_t drained;
    struct message *first;
    struct message **end; /* where the next message goes */
    uint64_t bytes;       /* queued and being delivered */
    bool refusing;
    bool ending;

    atomic_uint references;
    pthread_t thread;
    char *names[REMEMBERED_NAMES];
    unsigned next_name;
};

struct counters counters;

static _Atomic(acldumpCallback) registered;
static _Atomic uint64_t limit; /* of the bytes in the queue; 0: none */
static atomic_bool joins = true;

static pthread_mutex_t current_lock = PTHREAD_MUTEX_INITIALIZER;
static struct record *current;

struct message *message_new(const char *name, uint32_t bytes) {
    struct message *message = malloc(sizeof *message + bytes);
    if (message == NULL) {
        atomic_fetch_add(&counters.lost, 1);
        return NULL;
    }
    memset(message, 0, sizeof *message);
    message->bytes = bytes;
    strcpy(message->chunk.fileName, name);
    message->chunk.bufLen = bytes;
    message->chunk.offset = -1;
    memset(message->chunk.dataBuf + bytes, 0, sizeof message->chunk - offsetof(acldumpChunk, dataBuf));
    return message;
}

/* Returns whether the chunk arrived somewhere. */
static bool deliver(const acldumpChunk *chunk) {
    acldumpCallback callback = atomic_load(&registered);
    if (callback != NULL) {
        bool taken = callback(chunk, (int32_t)(sizeof *chunk + chunk->bufLen)) == 0;
        atomic_fetch_add(taken ? &counters.delivered : &counters.refused, 1);
        return taken;
    }
    bool written = disk_write(chunk) == 0;
    atomic_fetch_add(written ? &counters.disk : &counters.lost, 1);
    return written;
}

static bool remembers(const struct record *record, const char *name) {
    for (unsigned i = 0; i < REMEMBERED_NAMES; i++)
        if (record->names[i] != NULL && strcmp(record->names[i], name) == 0)
            return true;
    return false;
}

static void remember(struct record *record, const char *name) {
    char **place = &record->names[record->next_name];
    record->next_name = (record->next_name + 1) % REMEMBERED_NAMES;
    free(*place);
    *place = strdup(name);
}

/* Delivers a new chunk with the text and a NUL after it. */
static void deliver_stats(struct record *record, const acldumpChunk *rows, uint32_t statistics) {
    bool known = remembers(record, rows->fileName);
    char line[STATS_HEADER_BYTES];
    size_t header = known ? 0 : stats_header(statistics, line);
    acldumpChunk *text = malloc(sizeof *text + header + rows->bufLen + 1);
    if (text == NULL) {
        atomic_fetch_add(&counters.lost, 1);
        return;
    }
    memcpy(text, rows, offsetof(acldumpChunk, dataBuf));
    text->bufLen = (uint32_t)(header + rows->bufLen + 1);
    memcpy(text->dataBuf, line, header);
    memcpy(text->dataBuf + header, rows->dataBuf, rows->bufLen);
    memset(text->dataBuf + header + rows->bufLen, 0, 1 + sizeof *text - offsetof(acldumpChunk, dataBuf));
    if (deliver(text) && !known)
        remember(record, rows->fileName);
    free(text);
}

/* Returns the oldest message, or NULL when the thread must end. */
static struct message *take(struct record *record) {
    HOLD(&record->lock);
    while (record->first == NULL && !record->ending)
        pthread_cond_wait(&record->filled, &record->lock);
    struct message *message = record->first;
    if (message != NULL)
        record->first = message->next;
    if (record->first == NULL)
        record->end = &record->first;
    pthread_cond_broadcast(&record->drained);
    return message;
}

static void discard(struct record *record, struct message *message) {
    uint64_t bytes = message->bytes;
    free(message);
    HOLD(&record->lock);
    record->bytes -= bytes;
    pthread_cond_broadcast(&record->drained);
}

static void *record_main(void *argument) {
    struct record *record = argument;
    struct message *message;
    while ((message = take(record)) != NULL) {
        if (message->statistics)
            deliver_stats(record, &message->chunk, (uint32_t)message->statistics);
        else
            deliver(&message->chunk);
        discard(record, message);
    }
    record_release(record);
    return NULL;
}

void record_release(struct record *record) {
    if (atomic_fetch_sub(&record->references, 1) > 1)
        return;
    for (unsigned i = 0; i < REMEMBERED_NAMES; i++)
        free(record->names[i]);
    pthread_mutex_destroy(&record->lock);
    pthread_cond_destroy(&record->filled);
    pthread_cond_destroy(&record->drained);
    free(record);
}

struct record *record_acquire(void) {
    HOLD(&current_lock);
    if (current != NULL)
        atomic_fetch_add(&current->references, 1);
    return current;
}

static void set_current(struct record *record) {
    HOLD(&current_lock);
    current = record;
}

int record_start(void) {
    struct record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return -ENOMEM;
    record->end = &record->first;
    pthread_mutex_init(&record->lock, NULL);
    pthread_cond_init(&record->filled, NULL);
    pthread_cond_init(&record->drained, NULL);
    atomic_store(&record->references, 2); /* one for the thread, one for `current` */
    int error = thread_start(&record->thread, "dssim-record", record_main, record);
    if (error != 0) {
        atomic_store(&record->references, 1);
        record_release(record);
        return error;
    }
    set_current(record);
    return 0;
}

/* Ends every wait that the flag decides. */
static void raise_flag(struct record *record, bool *flag) {
    HOLD(&record->lock);
    *flag = true;
    pthread_cond_broadcast(&record->drained);
    pthread_cond_broadcast(&record->filled);
}

void record_refuse(void) {
    struct record *record = record_acquire();
    if (record == NULL)
        return;
    raise_flag(record, &record->refusing);
    record_release(record);
}

/* CANN 8.5 waits until nothing is queued, but not for the chunk that is being delivered. */
static void wait_until_taken(struct record *record) {
    HOLD(&record->lock);
    while (record->first != NULL)
        pthread_cond_wait(&record->drained, &record->lock);
}

void record_stop(bool always_join) {
    struct record *record = current;
    const bool join = always_join || atomic_load(&joins);
    raise_flag(record, &record->refusing);
    if (!join)
        wait_until_taken(record);
    raise_flag(record, &record->ending);
    if (join)
        pthread_join(record->thread, NULL);
    else
        pthread_detach(record->thread);
    set_current(NULL);
    record_release(record);
}

bool record_push(struct record *record, struct message *message) {
    uint64_t most = atomic_load(&limit);
    HOLD(&record->lock);
    while (!record->refusing && most > 0 && record->bytes > 0 && record->bytes + message->bytes > most)
        pthread_cond_wait(&record->drained, &record->lock);
    if (record->refusing) {
        atomic_fetch_add(&counters.lost, 1);
        free(message);
        return false;
    }
    message->next = NULL;
    *record->end = message;
    record->end = &message->next;
    record->bytes += message->bytes;
    pthread_cond_signal(&record->filled);
    return true;
}

void record_load(const struct dssim_workload *workload) {
    atomic_store(&limit, workload->queue_bytes);
    atomic_store(&joins, workload->cann != CANN_8_5);
}

/* A second registration succeeds without effect. */
aclError acldumpRegCallback(acldumpCallback callback, int32_t flag) {
    acldumpCallback none = NULL;
    if (callback == NULL || flag != 0)
        return ACL_ERROR_FAILURE;
    if (!atomic_compare_exchange_strong(&registered, &none, callback))
        atomic_fetch_add(&counters.ignored, 1);
    return ACL_SUCCESS;
}

void acldumpUnregCallback(void) {
    atomic_store(&registered, NULL);
}

/* A forked child has no record thread, and the queue belongs to its parent. */

static void before_fork(void) {
    pthread_mutex_lock(&current_lock);
    if (current != NULL)
        pthread_mutex_lock(&current->lock);
}

static void after_fork_in_parent(void) {
    if (current != NULL)
        pthread_mutex_unlock(&current->lock);
    pthread_mutex_unlock(&current_lock);
}

static void after_fork_in_child(void) {
    while (current != NULL && current->first != NULL) {
        struct message *message = current->first;
        current->first = message->next;
        free(message);
    }
    current = NULL;
    after_fork_in_parent();
}

__attribute__((constructor)) static void follow_forks(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
