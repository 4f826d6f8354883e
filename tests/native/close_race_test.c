/* Calls that arrive while rings are attached and destroyed: each chunk is copied whole or
 * refused, and no call touches a ring that is gone. */
#include <pthread.h>
#include <sched.h>

#include "chunks.h"
#include "dumpstream/callback.h"
#include "reading.h"

#define CALLERS 3u
#define ROUNDS 60u
#define SHORT_ROUNDS 3000u
#define LONG_NS 60000000000u

static _Atomic bool done;

static void *call_forever(void *argument) {
    const char *name = argument;
    struct guarded memory = guarded_create(sizeof(acldumpChunk) + 2000);
    acldumpChunk *chunk = chunk_at_end(&memory, name, 2004);
    chunk->isLastChunk = 1; /* so that no other call is refused after a loss */
    while (!atomic_load_explicit(&done, memory_order_relaxed))
        ds_on_chunk(chunk, CHUNK_HEAD + 2004);
    guarded_destroy(&memory);
    return NULL;
}

static void attach_read_and_destroy(unsigned round) {
    /* With and without waiting; empty or full when it ends. */
    const struct ds_policy policy = {
        .block = round % 2, .block_limit_ns = LONG_NS, .max_file_bytes = UINT64_C(1) << 40};
    struct ds_ring ring;
    CHECK_EQUAL(ds_ring_create(&ring, DS_RING_MIN_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(&ring, &policy), 0);
    for (unsigned i = 0; i < 5; i++) {
        while (is_empty(&ring, &ring.data))
            sched_yield();
        if (round % 3 == 0)
            drain(&ring, &ring.data);
    }

    CHECK_EQUAL(ds_detach(&ring, LONG_NS), 0);

    for (unsigned i = 0; !is_empty(&ring, &ring.data); i++) {
        struct ds_message view = take(&ring, &ring.data);
        CHECK_EQUAL(view.data_length, 2004);
        const char *data = view.data;
        CHECK_EQUAL(data[0], 'p');
        CHECK_EQUAL(data[2003], 'p');
    }
    CHECK_EQUAL(atomic_load(&ring.control->data.head), ring.data.read);
    ds_ring_destroy(&ring);
}

/* A ring with the shortest possible life: a call that does not notice its end crashes. */
static void attach_and_detach_at_once(struct ds_ring *ring) {
    const struct ds_policy policy = {.max_file_bytes = UINT64_C(1) << 40};
    CHECK_EQUAL(mprotect(ring->control, ring->mapped, PROT_READ | PROT_WRITE), 0);
    ds_ring_set_state(ring, DS_STATE_OPEN);
    CHECK_EQUAL(ds_attach(ring, &policy), 0);
    CHECK_EQUAL(ds_detach(ring, LONG_NS), 0);
    CHECK_EQUAL(mprotect(ring->control, ring->mapped, PROT_NONE), 0);
}

int main(void) {
    pthread_t callers[CALLERS];
    char *names[CALLERS] = {"a", "b", "c"};
    struct ds_ring ring;
    CHECK_EQUAL(ds_ring_create(&ring, DS_RING_MIN_BYTES, NULL), 0);
    for (unsigned i = 0; i < CALLERS; i++)
        CHECK_EQUAL(pthread_create(&callers[i], NULL, call_forever, names[i]), 0);

    for (unsigned round = 0; round < ROUNDS; round++)
        attach_read_and_destroy(round);
    for (unsigned round = 0; round < SHORT_ROUNDS; round++)
        attach_and_detach_at_once(&ring);
    atomic_store(&done, true);
    for (unsigned i = 0; i < CALLERS; i++)
        pthread_join(callers[i], NULL);

    CHECK(ds_late_calls() > 0);
    ds_ring_destroy(&ring);
    return 0;
}
