/* Producers that are killed at any moment: the reader reads everything that was published,
 * reports everything else, and accounts for every callback. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "dumpstream/callback.h"
#include "dumpstream/reader.h"

#define ROUNDS 60u
#define RING_BYTES (256u << 10)
#define THREADS 2u
#define LONGEST 6000u
#define NAME "producer0"

static void wake_no_reader(struct ds_ring *ring) {
    (void)ring;
}

/* The first bytes of a payload determine the rest. */
static uint32_t make_payload(uint8_t *data, uint64_t seed) {
    uint32_t length = 8 + (uint32_t)((seed * 0x9e3779b97f4a7c15u) >> 40) % (LONGEST - 8);
    memcpy(data, &seed, sizeof seed);
    for (uint32_t i = 8; i < length; i++)
        data[i] = (uint8_t)(seed + i * 7);
    return length;
}

static bool is_sound(const uint8_t *data, uint32_t length) {
    uint8_t expected[LONGEST];
    uint64_t seed;
    if (length < sizeof seed)
        return false;
    memcpy(&seed, data, sizeof seed);
    return make_payload(expected, seed) == length && memcmp(expected, data, length) == 0;
}

static void *produce(void *argument) {
    char name[] = NAME;
    uint8_t data[LONGEST];
    name[sizeof name - 2] += (char)(uintptr_t)argument;
    for (uint64_t seed = 0;; seed++) {
        uint32_t length = make_payload(data, seed);
        ds_push_chunk(name, sizeof name - 1, data, length, 1, -1, 0);
    }
    return NULL;
}

/* Never returns: the parent kills it. */
static void run_producers(int fd) {
    static struct ds_ring ring;
    const struct ds_policy policy = {
        .block = true, .block_limit_ns = UINT64_C(60000000000), .max_file_bytes = UINT64_C(1) << 40};
    pthread_t thread;
    CHECK_EQUAL(ds_ring_map(&ring, fd, RING_BYTES), 0);
    ring.wake = wake_no_reader;
    CHECK_EQUAL(ds_attach(&ring, &policy), 0);
    for (uintptr_t i = 1; i < THREADS; i++)
        CHECK_EQUAL(pthread_create(&thread, NULL, produce, (void *)i), 0);
    produce(NULL);
}

/* Takes one batch and checks it; returns how many chunks it had. */
static uint64_t check_batch(struct ds_reader *reader) {
    struct ds_batch batch;
    struct ds_message view;
    uint64_t count = 0;
    CHECK_EQUAL(ds_reader_take(reader, 64, RING_BYTES / 8, &batch), 0);
    for (uint64_t at = batch.chunks.start; ds_records_next(&batch.chunks, &at, &view) == 1; count++) {
        CHECK_EQUAL(view.name_length, strlen(NAME));
        CHECK(is_sound(view.data, view.data_length));
    }
    bool any = batch.size != 0;
    ds_ring_free(&reader->ring, &reader->ring.data, batch.chunks.end);
    ds_batch_free(&batch);
    return any ? count + 1 : 0;
}

static void round_of(const char *path, uint64_t microseconds, uint64_t *unfinished) {
    struct ds_reader reader;
    struct ds_counters counters;
    CHECK_EQUAL(ds_reader_create(&reader, RING_BYTES, path), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        run_producers(reader.ring.memory_fd);

    uint64_t end = ds_clock_ns() + microseconds * 1000;
    while (ds_clock_ns() < end)
        check_batch(&reader);
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
    ds_reader_end(&reader);
    while (check_batch(&reader))
        continue;

    ds_reader_count(&reader, &counters);
    CHECK_EQUAL(counters.callbacks, reader.finished + counters.lost_chunks[DS_CAUSE_UNFINISHED]);
    CHECK(counters.lost_chunks[DS_CAUSE_UNFINISHED] <= THREADS);
    CHECK(reader.holes <= THREADS);
    CHECK_EQUAL(counters.fill, 0);
    *unfinished += counters.lost_chunks[DS_CAUSE_UNFINISHED];
    ds_ring_destroy(&reader.ring);
}

int main(void) {
    char path[] = "/tmp/dumpstream-kill-XXXXXX";
    uint64_t unfinished = 0;
    CHECK_EQUAL(close(mkstemp(path)), 0);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        bool in_file = round % 4 == 3;
        unlink(path);
        round_of(in_file ? path : NULL, 500 + round * 7919 % 8000, &unfinished);
    }
    unlink(path);
    CHECK(unfinished > 0); /* otherwise no process was killed inside a callback */
    return 0;
}
