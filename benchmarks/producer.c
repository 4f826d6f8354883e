/* A stand-in for the runtime's thread: hands prepared chunks to whatever is
 * being measured, and keeps the time of every call. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dumpstream/acl_abi.h"

/* A pause from here on is slept; a shorter one would take longer asleep. */
#define SLEEP_NS 50000u
#define CLOCK_ROUNDS 1000

/* Takes one chunk; nonzero if it refuses. */
typedef int32_t (*target)(void *context, const acldumpChunk *chunk, int32_t len);

struct production {
    target target;
    void *context;
    acldumpChunk *const *chunks; /* handed out in turn, again and again */
    uint64_t chunk_count;
    uint64_t chunks_per_file; /* the last of so many is marked, and a new name begins */
    uint64_t calls;
    uint64_t number_at;  /* where in every name its file's number goes */
    uint64_t gap_ns;     /* between two calls */
    uint64_t *call_ns;   /* the time of every call; NULL to measure none */
    uint64_t elapsed_ns; /* result: of all calls and gaps */
    uint64_t refused;    /* result: calls answered with nonzero */
};

/* A buffer that copies walk through, as chunks do through the ring. */
struct walk {
    uint8_t *base;
    uint64_t size;
    uint64_t at;
};

#define NUMBER_DIGITS 8

int32_t bench_call(void *context, const acldumpChunk *chunk, int32_t len);
int32_t bench_copy(void *context, const acldumpChunk *chunk, int32_t len);
int32_t bench_append(void *context, const acldumpChunk *chunk, int32_t len);
uint64_t bench_clock_cost_ns(void);
int bench_produce(struct production *production);

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Targets */

/* Calls an ACL dump callback. */
int32_t bench_call(void *context, const acldumpChunk *chunk, int32_t len) {
    return ((acldumpCallback)(uintptr_t)context)(chunk, len);
}

/* Copies the payload, and does nothing else. */
int32_t bench_copy(void *context, const acldumpChunk *chunk, int32_t len) {
    struct walk *walk = context;
    (void)len;
    if (chunk->bufLen > walk->size - walk->at)
        walk->at = 0;
    memcpy(walk->base + walk->at, chunk->dataBuf, chunk->bufLen);
    walk->at += chunk->bufLen;
    return 0;
}

/* Appends the payload to the file whose path is the context. */
int32_t bench_append(void *context, const acldumpChunk *chunk, int32_t len) {
    (void)len;
    int fd = open(context, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    uint64_t done = 0;
    while (done < chunk->bufLen) {
        ssize_t written = write(fd, chunk->dataBuf + done, chunk->bufLen - done);
        if (written < 0)
            break;
        done += (uint64_t)written;
    }
    return close(fd) != 0 || done < chunk->bufLen ? -1 : 0;
}

/* The producing thread */

/* What two readings of the clock add to a measured time. */
uint64_t bench_clock_cost_ns(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        uint64_t before = clock_ns();
        uint64_t cost = clock_ns() - before;
        least = cost < least ? cost : least;
    }
    return least;
}

static void pause_ns(uint64_t ns) {
    if (ns >= SLEEP_NS) {
        struct timespec gap = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
        nanosleep(&gap, NULL);
    } else if (ns) {
        uint64_t until = clock_ns() + ns;
        while (clock_ns() < until)
            ;
    }
}

static void write_number(char *digits, uint64_t number) {
    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, number /= 10)
        digits[i] = (char)('0' + number % 10);
}

static void *produce(void *argument) {
    struct production *production = argument;
    uint64_t start = clock_ns();
    for (uint64_t i = 0; i < production->calls; i++) {
        acldumpChunk *chunk = production->chunks[i % production->chunk_count];
        write_number(chunk->fileName + production->number_at, i / production->chunks_per_file);
        chunk->isLastChunk = i % production->chunks_per_file == production->chunks_per_file - 1;
        int32_t len = (int32_t)(offsetof(acldumpChunk, dataBuf) + chunk->bufLen);
        uint64_t before = production->call_ns ? clock_ns() : 0;
        int32_t refused = production->target(production->context, chunk, len);
        if (production->call_ns)
            production->call_ns[i] = clock_ns() - before;
        production->refused += refused != 0;
        pause_ns(production->gap_ns);
    }
    production->elapsed_ns = clock_ns() - start;
    return NULL;
}

/* Produces on a thread of its own, one that Python has never seen, and waits
 * for its end. Returns 0 or an error number. */
int bench_produce(struct production *production) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, produce, production);
    return error ? error : pthread_join(thread, NULL);
}
