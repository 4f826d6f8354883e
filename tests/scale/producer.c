/* A process that is captured: hands over files, writes down in a ledger that
 * outlives it what it handed over, and may be killed on the way.
 *
 * producer LEDGER FILES KILL_AT KILL_AFTER_NS
 *
 * File i of rank r has size_of(r, i) bytes, in 1 + i % 3 chunks; the test
 * computes the same. At file KILL_AT (-1: none) a timer is set that kills the
 * process so many nanoseconds later, wherever it is then. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "dumpstream/acl_abi.h"

enum { MAX_FILE_BYTES = 8192, NOT_CAPTURED = 3, FAILED = 4 };

struct ledger {
    _Atomic uint64_t called;   /* chunks given to the callback */
    _Atomic uint64_t taken;    /* of these, answered with success */
    _Atomic uint64_t refused;  /* of these, answered with failure */
    _Atomic uint64_t bytes;    /* in the chunks taken */
    _Atomic uint64_t finished; /* whether everything was handed over */
};

acldumpCallback bench_registered(void);

static union {
    acldumpChunk chunk;
    uint8_t space[sizeof(acldumpChunk) + MAX_FILE_BYTES];
} message;

static uint32_t size_of(uint64_t rank, uint64_t file) {
    return (uint32_t)(512 + (rank * 7919 + file * 104729) % 7680);
}

static void hand_over(struct ledger *ledger, acldumpCallback callback, uint64_t rank, uint64_t file,
                      uint32_t from, uint32_t to, uint32_t size) {
    acldumpChunk *chunk = &message.chunk;
    chunk->bufLen = to - from;
    chunk->isLastChunk = to == size;
    for (uint32_t i = from; i < to; i++)
        chunk->dataBuf[i - from] = (uint8_t)(i * 31 + file * 7 + rank * 13);
    atomic_fetch_add(&ledger->called, 1);
    if (callback(chunk, (int32_t)(offsetof(acldumpChunk, dataBuf) + chunk->bufLen)) == 0) {
        atomic_fetch_add(&ledger->bytes, chunk->bufLen);
        atomic_fetch_add(&ledger->taken, 1);
    } else {
        atomic_fetch_add(&ledger->refused, 1);
    }
}

static void hand_over_file(struct ledger *ledger, acldumpCallback callback, uint64_t rank, uint64_t file) {
    uint32_t size = size_of(rank, file), chunks = 1 + (uint32_t)(file % 3);
    snprintf(message.chunk.fileName, sizeof message.chunk.fileName, "/dump/%llu/file.%llu",
             (unsigned long long)rank, (unsigned long long)file);
    message.chunk.offset = -1;
    for (uint32_t i = 0; i < chunks; i++)
        hand_over(ledger, callback, rank, file, size * i / chunks, size * (i + 1) / chunks, size);
}

static void set_killer(uint64_t after_ns) {
    struct sigevent killing = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(after_ns / 1000000000), .tv_nsec = (long)(after_ns % 1000000000)}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &killing, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0)
        exit(FAILED);
}

static struct ledger *open_ledger(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(struct ledger)) == 0)
        memory = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv) {
    if (argc != 5 || getenv("RANK") == NULL)
        return FAILED;
    struct ledger *ledger = open_ledger(argv[1]);
    uint64_t rank = strtoull(getenv("RANK"), NULL, 10), files = strtoull(argv[2], NULL, 10);
    long long kill_at = atoll(argv[3]);
    if (ledger == NULL || aclInit(NULL) != 0)
        return FAILED;
    acldumpCallback callback = bench_registered();
    if (callback == NULL)
        return NOT_CAPTURED;
    for (uint64_t file = 0; file < files; file++) {
        if ((long long)file == kill_at)
            set_killer(strtoull(argv[4], NULL, 10));
        hand_over_file(ledger, callback, rank, file);
    }
    atomic_store(&ledger->finished, 1);
    return aclFinalize() == 0 ? 0 : FAILED;
}
