/* A forked child never touches its parent's ring, and may have its own. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chunks.h"
#include "dumpstream/callback.h"
#include "reading.h"

#define LONG_NS 60000000000u

static struct ds_ring ring;
static struct guarded memory;
static acldumpChunk *chunk;

static int32_t call(void) {
    return ds_on_chunk(chunk, CHUNK_HEAD + 100);
}

static void attach(struct ds_ring *to, bool block) {
    const struct ds_policy policy = {
        .block = block, .block_limit_ns = LONG_NS, .max_file_bytes = UINT64_C(1) << 40};
    CHECK_EQUAL(ds_ring_create(to, DS_RING_MIN_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(to, &policy), 0);
}

/* pthread_atfork handlers do not run in such a child. */
static pid_t raw_fork(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Runs `body` in a child, which must end by itself and with success. */
static void in_child(pid_t (*make)(void), void (*body)(void)) {
    int status;
    pid_t child = make();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void refused_in_the_child(void) {
    unsigned char resident;

    CHECK(ds_forked());
    CHECK(call() != 0);
    CHECK(ds_on_chunk(NULL, 0) != 0);

    CHECK_EQUAL(mincore(ring.control, TEST_PAGE, &resident), -1);
    CHECK_EQUAL(errno, ENOMEM);
}

static void capturing_in_the_child(void) {
    struct ds_ring own;
    CHECK(call() != 0);

    attach(&own, false);

    CHECK(!ds_forked());
    CHECK_EQUAL(call(), 0);
    CHECK_EQUAL(drain(&own, &own.data), 1);
    CHECK_EQUAL(ds_detach(&own, 0), 0);
    ds_ring_destroy(&own);
    CHECK(call() != 0);
    CHECK_EQUAL(ds_late_calls(), 1);
}

static void capturing_in_child_and_grandchild(void) {
    struct ds_ring own;
    attach(&own, false);

    in_child(fork, refused_in_the_child);
    in_child(fork, capturing_in_the_child);

    CHECK_EQUAL(call(), 0);
    CHECK_EQUAL(drain(&own, &own.data), 1);
}

static void parent_goes_on_whatever_its_children_do(void) {
    void (*const bodies[])(void) = {refused_in_the_child, capturing_in_the_child,
                                    capturing_in_child_and_grandchild};
    attach(&ring, false);

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        in_child(fork, bodies[i]);
        in_child(raw_fork, bodies[i]);
    }

    CHECK(!ds_forked());
    CHECK_EQUAL(atomic_load(&ring.control->callbacks), 0);
    CHECK(is_empty(&ring, &ring.data));
    CHECK_EQUAL(call(), 0);
    CHECK_EQUAL(drain(&ring, &ring.data), 1);
    CHECK_EQUAL(ds_detach(&ring, 0), 0);
    ds_ring_destroy(&ring);
}

static void *call_on_a_thread(void *argument) {
    (void)argument;
    CHECK(call() != 0);
    return NULL;
}

static void child_of_a_blocked_parent_can_attach_and_detach(void) {
    pthread_t thread;
    attach(&ring, true);
    while (ds_ring_push(&ring, &ring.data, &(struct ds_message){.name = "f", .name_length = 1}) == 0)
        continue;
    CHECK_EQUAL(pthread_create(&thread, NULL, call_on_a_thread, NULL), 0);
    while (!atomic_load(&ring.control->waiters))
        sched_yield();

    in_child(fork, capturing_in_the_child);

    CHECK_EQUAL(ds_detach(&ring, LONG_NS), 0);
    pthread_join(thread, NULL);
    ds_ring_destroy(&ring);
}

static void child_of_a_parent_that_has_ended_its_capture_starts_afresh(void) {
    struct ds_ring own;
    attach(&own, false);
    CHECK_EQUAL(ds_detach(&own, 0), 0);
    ds_ring_destroy(&own);

    in_child(fork, capturing_in_the_child);
}

int main(void) {
    memory = guarded_create(sizeof(acldumpChunk) + 100);
    chunk = chunk_at_end(&memory, "file", 100);
    CHECK(!ds_forked());
    parent_goes_on_whatever_its_children_do();
    child_of_a_blocked_parent_can_attach_and_detach();
    child_of_a_parent_that_has_ended_its_capture_starts_afresh();
    guarded_destroy(&memory);
    return 0;
}
