/* Chunks that are cut off between their records: the reader always learns where they end,
 * even if there is no space for other notes. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "dumpstream/callback.h"
#include "reading.h"

#define RING_BYTES DS_RING_MIN_BYTES
#define LONG_NS 60000000000u

static struct ds_ring ring;
static uint8_t payload[4 * RING_BYTES];

static void begin(bool block) {
    const struct ds_policy policy = {
        .block = block, .block_limit_ns = LONG_NS, .max_file_bytes = UINT64_C(1) << 40};
    CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(&ring, &policy), 0);
}

static void end(void) {
    CHECK_EQUAL(ds_detach(&ring, LONG_NS), 0);
    ds_ring_destroy(&ring);
}

static int32_t send(const char *name, uint64_t length) {
    return ds_push_chunk(name, strlen(name), payload, length, true, -1, 0);
}

static int32_t send_refused(const char *name) {
    return ds_push_chunk(name, strlen(name), payload, 1, true, -2, 0);
}

static uint64_t unnamed(void) {
    return atomic_load(&ring.control->unnamed_chunks);
}

static uint32_t abandons(void) {
    return atomic_load(&ring.control->abandons);
}

/* Loses chunks until there is no space for another note. Returns how many have a note. */
static unsigned fill_notes(void) {
    unsigned count = 0;
    for (; unnamed() == 0; count++)
        CHECK(send_refused("lost") != 0);
    return count - 1;
}

static void cut_off_chunk_is_noted_when_no_other_loss_is(void) {
    begin(false);
    unsigned notes = fill_notes();

    CHECK(send("large", sizeof payload) != 0);

    for (unsigned i = 0; i < notes; i++)
        CHECK_EQUAL(take(&ring, &ring.notes).flags, DS_RECORD_LAST);
    struct ds_message note = take(&ring, &ring.notes);
    CHECK(is_named(&note, "large"));
    CHECK_EQUAL(note.flags, DS_RECORD_LAST | DS_RECORD_ABANDON);
    CHECK_EQUAL(note.flag, DS_CAUSE_FULL);
    CHECK_EQUAL(note.sequence, atomic_load(&ring.control->data.head));
    CHECK_EQUAL(unnamed(), 1);
    CHECK_EQUAL(abandons(), 1);
    end();
}

static void chunk_that_passes_needs_no_note(void) {
    begin(false);

    CHECK_EQUAL(send("large", RING_BYTES / 2), 0);

    CHECK(is_empty(&ring, &ring.notes));
    CHECK_EQUAL(abandons(), 0);
    end();
}

static void chunk_lost_at_its_first_record_abandons_nothing(void) {
    begin(false);
    CHECK_EQUAL(send("filler", RING_BYTES - RING_BYTES / 8), 0);

    CHECK(send("large", RING_BYTES / 4) != 0);

    CHECK_EQUAL(take(&ring, &ring.notes).flags, DS_RECORD_LAST);
    CHECK_EQUAL(abandons(), 0);
    end();
}

static void cut_off_chunk_without_a_reservation_is_counted_as_unnamed(void) {
    begin(false);
    for (unsigned i = 0; i < DS_ABANDON_MAX; i++)
        CHECK(ds_ring_reserve_abandon(&ring));
    CHECK(!ds_ring_reserve_abandon(&ring));
    fill_notes();

    CHECK(send("large", sizeof payload) != 0);

    CHECK_EQUAL(unnamed(), 2);
    CHECK_EQUAL(abandons(), DS_ABANDON_MAX);
    end();
}

/* Takes one record, and the notes that come before the next, as a reader does. */
static void read_on(void) {
    struct ds_message note;
    take(&ring, &ring.data);
    free_read(&ring, &ring.data);
    for (uint64_t position = ring.notes.read; ds_ring_peek(&ring, &ring.notes, &position, &note) == 1;) {
        if (note.sequence > ring.data.read)
            return;
        ring.notes.read = position;
        free_read(&ring, &ring.notes);
        if (note.flags & DS_RECORD_ABANDON)
            ds_ring_return_abandon(&ring);
    }
}

static void one_producer_always_finds_a_reservation(void) {
    uint32_t most = 0;
    begin(false);

    for (unsigned round = 0; round < 100; round++) {
        CHECK(abandons() < DS_ABANDON_MAX);
        CHECK(send("large", sizeof payload) != 0);
        most = abandons() > most ? abandons() : most;
        read_on(); /* space for one record: the next chunk is cut off after it */
    }

    CHECK(most > DS_ABANDON_MAX / 2);
    end();
}

/* The longest names, with the lane full of other notes at any point of its lap. */
static void every_reserved_note_finds_space(void) {
    static const char name[DS_NAME_MAX] = "n";
    struct ds_message abandon = {.name = name, .name_length = DS_NAME_MAX, .flags = DS_RECORD_ABANDON};
    CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
    for (uint32_t length = 1; length <= DS_NAME_MAX; length += 13) {
        struct ds_message note = {.name = name, .name_length = length};
        while (ds_ring_push(&ring, &ring.notes, &note) == 0)
            continue;

        for (unsigned i = 0; i < DS_ABANDON_MAX; i++)
            CHECK_EQUAL(ds_ring_push(&ring, &ring.notes, &abandon), 0);

        CHECK_EQUAL(ds_ring_push(&ring, &ring.notes, &note), -EAGAIN);
        CHECK(drain(&ring, &ring.notes) > DS_ABANDON_MAX);
    }
    ds_ring_destroy(&ring);
}

static void *send_large(void *result) {
    *(int32_t *)result = send("large", sizeof payload);
    return NULL;
}

static void note_does_not_wait_for_a_chunk_that_is_on_its_way(void) {
    pthread_t thread;
    int32_t result = 1;
    begin(true);
    CHECK_EQUAL(pthread_create(&thread, NULL, send_large, &result), 0);
    while (atomic_load(&ring.control->waiters) == 0)
        sched_yield();
    CHECK_EQUAL(abandons(), 1);

    CHECK(send_refused("other") != 0);

    struct ds_message note = take(&ring, &ring.notes);
    CHECK(is_named(&note, "other"));
    for (struct ds_message view = {0}; !(view.flags & DS_RECORD_LAST);) {
        while (is_empty(&ring, &ring.data))
            sched_yield();
        view = take(&ring, &ring.data);
        free_read(&ring, &ring.data);
    }
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK_EQUAL(result, 0);
    CHECK_EQUAL(abandons(), 0);
    end();
}

int main(void) {
    cut_off_chunk_is_noted_when_no_other_loss_is();
    chunk_that_passes_needs_no_note();
    chunk_lost_at_its_first_record_abandons_nothing();
    cut_off_chunk_without_a_reservation_is_counted_as_unnamed();
    one_producer_always_finds_a_reservation();
    every_reserved_note_finds_space();
    note_does_not_wait_for_a_chunk_that_is_on_its_way();
    return 0;
}
