/* What the callback does when the ring is full, and what it does with the rest of a file that
 * has lost a chunk. */
#include <pthread.h>
#include <sched.h>

#include "dumpstream/callback.h"
#include "reading.h"

#define RING_BYTES DS_RING_MIN_BYTES
#define SHORT_NS 20000000u
#define VAIN_NS 200000000u
#define LONG_NS 60000000000u
#define KIB 1024u

static struct ds_ring ring;
static uint8_t payload[4 * RING_BYTES];

static void begin(bool block, uint64_t block_limit_ns) {
    const struct ds_policy policy = {
        .block = block, .block_limit_ns = block_limit_ns, .max_file_bytes = UINT64_C(1) << 40};
    CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(&ring, &policy), 0);
}

static void end(void) {
    CHECK_EQUAL(ds_detach(&ring, 0), 0);
    ds_ring_destroy(&ring);
}

static int32_t send(const char *name, uint64_t length, bool last) {
    return ds_push_chunk(name, strlen(name), payload, length, last, -1, 0);
}

/* Fills the ring to the last record with chunks of another file. */
static void fill_ring(void) {
    for (unsigned i = 0; i < RING_BYTES / (KIB + 64); i++)
        CHECK_EQUAL(send("filler", KIB, false), 0);
    while (ds_ring_push(&ring, &ring.data, &(struct ds_message){.name = "f", .name_length = 1}) == 0)
        continue;
}

static uint64_t lost(enum ds_cause cause) {
    return atomic_load(&ring.control->lost_chunks[cause]);
}

static void expect_note(const char *name, enum ds_cause cause, uint64_t bytes, bool ended) {
    struct ds_message note = take(&ring, &ring.notes);
    CHECK(is_named(&note, name));
    CHECK_EQUAL(note.flag, cause);
    CHECK_EQUAL(note.offset, bytes);
    CHECK_EQUAL((note.flags & DS_RECORD_LAST) != 0, ended);
    free_read(&ring, &ring.notes);
}

/* A call on another thread. */
struct call {
    pthread_t thread;
    const char *name;
    uint64_t length;
    bool not_last;
    int32_t result;
};

static void *run_call(void *argument) {
    struct call *call = argument;
    call->result = send(call->name, call->length, !call->not_last);
    return NULL;
}

static void start(struct call *call) {
    CHECK_EQUAL(pthread_create(&call->thread, NULL, run_call, call), 0);
}

static int32_t finish(struct call *call) {
    CHECK_EQUAL(pthread_join(call->thread, NULL), 0);
    return call->result;
}

static void await_waiters(uint32_t count) {
    while (atomic_load(&ring.control->waiters) != count)
        sched_yield();
}

/* Drop */

static void dropped_chunk_takes_the_rest_of_its_file_with_it(void) {
    begin(false, 0);
    fill_ring();

    CHECK(send("lost", 500, false) != 0);
    drain(&ring, &ring.data);
    CHECK(send("lost", 300, false) != 0);
    CHECK_EQUAL(send("other", 10, true), 0);
    CHECK(send("lost", 200, true) != 0);
    CHECK_EQUAL(send("lost", 7, true), 0); /* a new file of that name */

    CHECK_EQUAL(lost(DS_CAUSE_FULL), 1);
    CHECK_EQUAL(lost(DS_CAUSE_AFTER_LOSS), 2);
    CHECK_EQUAL(atomic_load(&ring.control->lost_bytes[DS_CAUSE_AFTER_LOSS]), 500);
    expect_note("lost", DS_CAUSE_FULL, 500, false);
    expect_note("lost", DS_CAUSE_AFTER_LOSS, 500, true);
    CHECK(is_empty(&ring, &ring.notes));
    struct ds_message other = take(&ring, &ring.data);
    CHECK(is_named(&other, "other"));
    CHECK_EQUAL(take(&ring, &ring.data).data_length, 7);
    CHECK(is_empty(&ring, &ring.data));
    end();
}

static void dropped_last_chunk_refuses_nothing_more(void) {
    begin(false, 0);
    fill_ring();

    CHECK(send("lost", 5, true) != 0);
    drain(&ring, &ring.data);

    CHECK_EQUAL(send("lost", 5, false), 0);
    expect_note("lost", DS_CAUSE_FULL, 5, true);
    CHECK(is_empty(&ring, &ring.notes));
    end();
}

static void file_without_a_last_chunk_is_named_after_detach(void) {
    const char *name;
    uint32_t name_length;
    uint64_t bytes;
    begin(false, 0);
    fill_ring();
    CHECK(send("unended", 100, false) != 0);
    CHECK(send("unended", 11, false) != 0);
    CHECK(send("unended", 22, false) != 0);

    CHECK_EQUAL(ds_detach(&ring, 0), 0);

    CHECK(ds_refused_file(0, &name, &name_length, &bytes));
    CHECK_EQUAL(name_length, 7);
    CHECK(memcmp(name, "unended", 7) == 0);
    CHECK_EQUAL(bytes, 33);
    for (uint32_t i = 1; i < DS_REFUSED_MAX; i++)
        CHECK(!ds_refused_file(i, &name, &name_length, &bytes));
    ds_ring_destroy(&ring);
}

static void note_says_how_much_was_read_before_it(void) {
    begin(false, 0);
    CHECK_EQUAL(send("whole", 100, true), 0);
    uint64_t head = atomic_load(&ring.control->data.head);

    CHECK(ds_push_chunk("lost", 4, payload, 1, 1, -2, 0) != 0);
    CHECK_EQUAL(send("whole", 100, true), 0);

    CHECK_EQUAL(take(&ring, &ring.notes).sequence, head);
    end();
}

static void losses_beyond_the_note_lane_are_counted_as_unnamed(void) {
    unsigned notes = 0;
    begin(false, 0);
    fill_ring();

    while (atomic_load(&ring.control->unnamed_chunks) == 0) {
        CHECK(send("lost", 5, true) != 0);
        notes++;
    }
    CHECK(send("lost", 5, true) != 0);

    CHECK_EQUAL(atomic_load(&ring.control->unnamed_chunks), 2);
    CHECK_EQUAL(lost(DS_CAUSE_FULL), notes + 1);
    CHECK_EQUAL(drain(&ring, &ring.notes), notes - 1);
    CHECK(send("lost", 5, true) != 0);
    expect_note("lost", DS_CAUSE_FULL, 5, true);
    end();
}

static void files_beyond_the_refused_table_are_counted_as_unnamed_once(void) {
    char name[16];
    begin(false, 0);
    fill_ring();
    for (unsigned i = 0; i < DS_REFUSED_MAX; i++) {
        snprintf(name, sizeof name, "file%u", i);
        CHECK(send(name, 5, false) != 0);
    }
    CHECK_EQUAL(atomic_load(&ring.control->unnamed_chunks), 0);

    CHECK(send("one too many", 5, false) != 0);
    CHECK_EQUAL(atomic_load(&ring.control->unnamed_chunks), 1);

    CHECK_EQUAL(drain(&ring, &ring.notes), DS_REFUSED_MAX + 1);
    CHECK(send("file7", 5, true) != 0); /* its slot is free again */
    CHECK(send("one more", 5, false) != 0);
    CHECK_EQUAL(atomic_load(&ring.control->unnamed_chunks), 1);
    end();
}

static void next_ring_begins_with_nothing_refused(void) {
    begin(false, 0);
    fill_ring();
    CHECK(send("file", 5, false) != 0);
    end();

    begin(false, 0);

    CHECK_EQUAL(send("file", 5, false), 0);
    CHECK_EQUAL(lost(DS_CAUSE_AFTER_LOSS), 0);
    end();
}

/* Block */

static void blocked_call_goes_on_when_space_is_freed(void) {
    struct call call = {.name = "late", .length = KIB};
    begin(true, LONG_NS);
    fill_ring();

    start(&call);
    await_waiters(1);
    uint32_t freed = atomic_load(&ring.control->freed);
    CHECK(drain(&ring, &ring.data) > 0);

    CHECK(atomic_load(&ring.control->freed) != freed);
    CHECK_EQUAL(finish(&call), 0);
    struct ds_message view = take(&ring, &ring.data);
    CHECK(is_named(&view, "late"));
    CHECK_EQUAL(view.data_length, KIB);
    CHECK_EQUAL(lost(DS_CAUSE_TIMEOUT), 0);
    end();
}

static void blocked_call_is_lost_at_the_time_limit_and_the_next_at_once(void) {
    begin(true, SHORT_NS);
    fill_ring();
    uint64_t started = ds_clock_ns();

    CHECK(send("a", 5, true) != 0);
    CHECK(ds_clock_ns() - started >= SHORT_NS);
    uint64_t waited = ds_clock_ns();
    for (unsigned i = 0; i < 200; i++)
        CHECK(send("b", 6, true) != 0);
    CHECK(ds_clock_ns() - waited < 200u * SHORT_NS);

    CHECK_EQUAL(lost(DS_CAUSE_TIMEOUT), 201);
    expect_note("a", DS_CAUSE_TIMEOUT, 5, true);
    end();
}

static void calls_wait_again_once_the_reader_has_moved(void) {
    begin(true, SHORT_NS);
    fill_ring();
    CHECK(send("lost", 5, true) != 0);
    drain(&ring, &ring.data);
    fill_ring();
    uint64_t started = ds_clock_ns();

    CHECK(send("lost", 5, true) != 0);

    CHECK(ds_clock_ns() - started >= SHORT_NS);
    end();
}

/* Reads one record while a call waits for more space than that. */
static bool read_one(struct ds_ring *waiting) {
    waiting->reader_alive = NULL;
    take(waiting, &waiting->data);
    free_read(waiting, &waiting->data);
    return true;
}

static void calls_wait_again_if_the_reader_moved_while_one_waited_in_vain(void) {
    begin(true, VAIN_NS);
    fill_ring();
    ring.reader_alive = read_one;
    CHECK(send("lost", 4 * KIB, true) != 0);
    CHECK(!ring.reader_alive);
    uint64_t started = ds_clock_ns();

    CHECK(send("lost", 4 * KIB, true) != 0);

    CHECK(ds_clock_ns() - started >= VAIN_NS);
    end();
}

/* Chunks larger than a record */

static void large_chunk_passes_a_small_ring_as_several_records(void) {
    const uint64_t length = sizeof payload;
    struct call call = {.name = "large", .length = length};
    uint64_t read = 0;
    uint32_t flags = DS_RECORD_MORE;
    begin(true, LONG_NS);

    start(&call);
    while (flags & DS_RECORD_MORE) {
        while (is_empty(&ring, &ring.data))
            sched_yield();
        struct ds_message view = take(&ring, &ring.data);
        CHECK(is_named(&view, "large"));
        CHECK_EQUAL(view.sequence, 0);
        CHECK_EQUAL(view.offset, -1);
        CHECK(64 + view.data_length <= ring.max_record); /* head and name take 64 bytes */
        CHECK(memcmp(view.data, payload + read, view.data_length) == 0);
        read += view.data_length;
        flags = view.flags;
        free_read(&ring, &ring.data);
    }

    CHECK_EQUAL(finish(&call), 0);
    CHECK_EQUAL(read, length);
    CHECK_EQUAL(flags, DS_RECORD_LAST);
    CHECK_EQUAL(atomic_load(&ring.control->callbacks), 1);
    end();
}

static void records_of_a_large_chunk_have_running_offsets(void) {
    int64_t next = 1000;
    begin(false, 0);

    CHECK_EQUAL(ds_push_chunk("large", 5, payload, 40000, 0, next, 0), 0);

    while (!is_empty(&ring, &ring.data)) {
        struct ds_message view = take(&ring, &ring.data);
        CHECK_EQUAL(view.offset, next);
        next += view.data_length;
        CHECK_EQUAL(view.flags, next < 41000 ? DS_RECORD_MORE : 0);
    }
    CHECK_EQUAL(next, 41000);
    end();
}

static void large_chunk_cut_off_by_the_time_limit_is_one_loss_of_its_rest(void) {
    uint64_t read = 0;
    begin(true, SHORT_NS);

    CHECK(send("large", sizeof payload, true) != 0);

    while (!is_empty(&ring, &ring.data)) {
        struct ds_message view = take(&ring, &ring.data);
        CHECK_EQUAL(view.flags, DS_RECORD_MORE);
        read += view.data_length;
    }
    CHECK(read > RING_BYTES / 2);
    CHECK_EQUAL(lost(DS_CAUSE_TIMEOUT), 1);
    CHECK_EQUAL(atomic_load(&ring.control->lost_bytes[DS_CAUSE_TIMEOUT]), sizeof payload - read);
    CHECK_EQUAL(take(&ring, &ring.notes).sequence, ring.data.read);
    end();
}

/* The end */

static void calls_after_detach_are_refused_and_counted(void) {
    begin(true, LONG_NS);
    end();
    uint64_t before = ds_late_calls();

    CHECK(send("late", 5, true) != 0);
    CHECK(ds_on_chunk(NULL, 0) != 0);

    CHECK_EQUAL(ds_late_calls(), before + 2);
}

static void detach_ends_blocked_calls(void) {
    struct call calls[3] = {
        {.name = "a", .length = KIB}, {.name = "b", .length = KIB}, {.name = "c", .length = 0}};
    begin(true, LONG_NS);
    fill_ring();
    for (unsigned i = 0; i < 3; i++)
        start(&calls[i]);
    await_waiters(3);
    uint32_t freed = atomic_load(&ring.control->freed);

    CHECK_EQUAL(ds_detach(&ring, LONG_NS / 2), 0);

    CHECK(atomic_load(&ring.control->freed) != freed);
    for (unsigned i = 0; i < 3; i++)
        CHECK(finish(&calls[i]) != 0);
    CHECK_EQUAL(lost(DS_CAUSE_DISCARDED), 3);
    CHECK_EQUAL(drain(&ring, &ring.notes), 3);
    ds_ring_destroy(&ring);
}

static void file_lost_by_two_calls_at_once_is_refused_once(void) {
    struct call calls[2] = {{.name = "twice", .length = KIB, .not_last = true},
                            {.name = "twice", .length = KIB, .not_last = true}};
    const char *name;
    uint32_t name_length;
    uint64_t bytes;
    begin(true, LONG_NS);
    fill_ring();
    for (unsigned i = 0; i < 2; i++)
        start(&calls[i]);
    await_waiters(2);

    CHECK_EQUAL(ds_detach(&ring, LONG_NS / 2), 0);

    for (unsigned i = 0; i < 2; i++)
        CHECK(finish(&calls[i]) != 0);
    CHECK(ds_refused_file(0, &name, &name_length, &bytes));
    CHECK(!ds_refused_file(1, &name, &name_length, &bytes));
    ds_ring_destroy(&ring);
}

static void discarding_ends_blocked_calls_and_counts_all_that_follow(void) {
    struct call call = {.name = "blocked", .length = KIB};
    begin(true, LONG_NS);
    fill_ring();
    start(&call);
    await_waiters(1);

    ds_ring_set_state(&ring, DS_STATE_DISCARD);

    CHECK(finish(&call) != 0);
    CHECK(send("next", 10, true) != 0);
    drain(&ring, &ring.data);
    CHECK(send("next", 10, true) != 0);
    CHECK_EQUAL(lost(DS_CAUSE_DISCARDED), 3);
    CHECK_EQUAL(atomic_load(&ring.control->lost_bytes[DS_CAUSE_DISCARDED]), KIB + 20);
    CHECK(is_empty(&ring, &ring.data));
    end();
}

int main(void) {
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 131 >> 3);
    dropped_chunk_takes_the_rest_of_its_file_with_it();
    dropped_last_chunk_refuses_nothing_more();
    file_without_a_last_chunk_is_named_after_detach();
    note_says_how_much_was_read_before_it();
    losses_beyond_the_note_lane_are_counted_as_unnamed();
    files_beyond_the_refused_table_are_counted_as_unnamed_once();
    next_ring_begins_with_nothing_refused();
    blocked_call_goes_on_when_space_is_freed();
    blocked_call_is_lost_at_the_time_limit_and_the_next_at_once();
    calls_wait_again_once_the_reader_has_moved();
    calls_wait_again_if_the_reader_moved_while_one_waited_in_vain();
    large_chunk_passes_a_small_ring_as_several_records();
    records_of_a_large_chunk_have_running_offsets();
    large_chunk_cut_off_by_the_time_limit_is_one_loss_of_its_rest();
    calls_after_detach_are_refused_and_counted();
    detach_ends_blocked_calls();
    file_lost_by_two_calls_at_once_is_refused_once();
    discarding_ends_blocked_calls_and_counts_all_that_follow();
    return 0;
}
