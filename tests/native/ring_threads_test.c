/* Four producers and one reader: all bytes arrive, in the order of each producer, and no
 * wake-up is lost. In one run they sleep and wake each other. In the other they only look, so
 * that only stamps and the tail order their accesses, and the thread sanitizer sees if those
 * do not. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "reading.h"

#define PRODUCERS 4u
#define MESSAGES 5000u
#define LONGEST 3000u
#define WAKE_LIMIT_MS 20000
#define NEVER UINT64_MAX

static struct ds_ring ring;
static bool sleeping;

static uint32_t length_of(uint32_t producer, uint64_t sequence) {
    uint64_t mixed = (sequence * PRODUCERS + producer + 1) * 0x9e3779b97f4a7c15u;
    /* Mostly small, as real chunks are, so that the reader often sleeps. */
    return (mixed >> 56) < 64 ? (uint32_t)((mixed >> 32) % LONGEST) : (uint32_t)((mixed >> 32) % 64);
}

static void fill_payload(uint8_t *data, uint32_t length, uint32_t producer, uint64_t sequence) {
    for (uint32_t i = 0; i < length; i++)
        data[i] = (uint8_t)(producer * 61 + sequence * 17 + i * 7);
}

static int push(const struct ds_message *message) {
    if (sleeping)
        return ds_ring_push_wait(&ring, message, NEVER);
    int result;
    while ((result = ds_ring_push(&ring, &ring.data, message)) == -EAGAIN)
        sched_yield();
    return result;
}

/* The reader asks for a wake-up whenever it finds the ring empty. */
static void await_sleeping_reader(void) {
    while (atomic_load(&ring.control->wake_at) == NEVER)
        sched_yield();
}

static void *produce(void *argument) {
    uint32_t producer = (uint32_t)(uintptr_t)argument;
    char name[16];
    uint8_t data[LONGEST];
    int name_length = snprintf(name, sizeof name, "producer%u", producer);
    for (uint64_t sequence = 0; sequence < MESSAGES; sequence++) {
        struct ds_message message = {.name = name,
                                     .name_length = (uint32_t)name_length,
                                     .data = data,
                                     .data_length = length_of(producer, sequence),
                                     .sequence = sequence,
                                     .offset = -1,
                                     .flag = (int32_t)producer};
        fill_payload(data, message.data_length, producer, sequence);
        if (sleeping && sequence % 32 == 0)
            await_sleeping_reader();
        CHECK_EQUAL(push(&message), 0);
    }
    return NULL;
}

static void check_record(const struct ds_message *view, uint64_t *next) {
    uint8_t expected[LONGEST];
    uint32_t producer = (uint32_t)view->flag;
    CHECK(producer < PRODUCERS);
    CHECK_EQUAL(view->sequence, next[producer]++);
    CHECK_EQUAL(view->name_length, 9);
    CHECK_EQUAL(view->name[8], '0' + (int)producer);
    CHECK_EQUAL(view->data_length, length_of(producer, view->sequence));
    fill_payload(expected, view->data_length, producer, view->sequence);
    CHECK(memcmp(view->data, expected, view->data_length) == 0);
}

/* Sleeps until the eventfd is readable. The reader has asked for the very next record, so only
 * a lost wake-up can make this wait long. */
static void sleep_until_woken(void) {
    if (ds_ring_arm(&ring, 0))
        return;
    struct pollfd wakeup = {.fd = ring.event_fd, .events = POLLIN};
    CHECK_EQUAL(poll(&wakeup, 1, WAKE_LIMIT_MS), 1);
    ds_ring_disarm(&ring);
}

static void read_everything(void) {
    uint64_t next[PRODUCERS] = {0};
    uint64_t count = 0;
    while (count < PRODUCERS * MESSAGES) {
        struct ds_message view;
        int found;
        while ((found = ds_ring_peek(&ring, &ring.data, &ring.data.read, &view)) == 1) {
            check_record(&view, next);
            count++;
        }
        CHECK_EQUAL(found, 0);
        free_read(&ring, &ring.data);
        if (!sleeping)
            sched_yield();
        else if (count < PRODUCERS * MESSAGES)
            sleep_until_woken();
    }
}

static void run(void) {
    pthread_t producers[PRODUCERS];
    CHECK_EQUAL(ds_ring_create(&ring, DS_RING_MIN_BYTES, NULL), 0);

    for (uintptr_t i = 0; i < PRODUCERS; i++)
        CHECK_EQUAL(pthread_create(&producers[i], NULL, produce, (void *)i), 0);
    read_everything();
    for (unsigned i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i], NULL);

    CHECK(is_empty(&ring, &ring.data));
    CHECK_EQUAL(atomic_load(&ring.control->waiters), 0);
    if (sleeping)
        CHECK(atomic_load(&ring.control->wakeups) > 100);
    ds_ring_destroy(&ring);
}

int main(void) {
    run();
    sleeping = true;
    run();
    return 0;
}
