/* A ring that another process fills: what the reader takes from it, and what a dead or
 * careless producer leaves in it. Once in memory and once in a file. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "chunks.h"
#include "dumpstream/callback.h"
#include "pair.h"
#include "reading.h"

static void note(const char *name, uint64_t sequence, uint32_t flags) {
    struct ds_message message = {.name = name,
                                 .name_length = (uint32_t)strlen(name),
                                 .sequence = sequence,
                                 .offset = 7,
                                 .flags = flags,
                                 .flag = DS_CAUSE_FULL};
    CHECK_EQUAL(ds_ring_push(&producer, &producer.notes, &message), 0);
}

/* Claims space for a record and never publishes it, as a killed producer does. */
static void leave_hole(struct ds_lane *lane, uint64_t bytes) {
    atomic_fetch_add(&lane->positions->head, bytes);
}

static unsigned count_records(const struct ds_records *records) {
    struct ds_message view;
    unsigned count = 0;
    uint64_t position = records->start;
    while (ds_records_next(records, &position, &view) == 1)
        count++;
    return count;
}

static void records_come_as_they_were_pushed(void) {
    open_both();

    CHECK_EQUAL(push("a", "one", 3, 0), 0);
    CHECK_EQUAL(push("b", "two", 3, DS_RECORD_LAST), 0);

    expect_text("onetwo");
    expect_text("");
    close_both();
}

static void many_laps_pass(void) {
    char text[32];
    open_both();

    for (unsigned i = 0; i < 20000; i++) {
        int length = snprintf(text, sizeof text, "%u", i * 7919u);
        CHECK_EQUAL(push("lap", text, (uint32_t)length, 0), 0);
        if (i % 3 == 2)
            take_text();
    }

    CHECK(atomic_load(&producer.control->data.head) > 10 * RING_BYTES);
    CHECK_EQUAL(reader.finished, 20000 / 3 * 3);
    close_both();
}

static void copy_does_not_change_with_the_ring(void) {
    open_both();
    CHECK_EQUAL(push("a", "kept", 4, 0), 0);
    struct ds_batch batch = take_batch();

    memset(producer.data.base, 0xff, producer.data.size);

    struct ds_message view;
    uint64_t position = batch.chunks.start;
    CHECK_EQUAL(ds_records_next(&batch.chunks, &position, &view), 1);
    CHECK(memcmp(view.data, "kept", 4) == 0);
    ds_batch_free(&batch);
    close_both();
}

static void limits_bound_a_batch(void) {
    struct ds_batch batch;
    open_both();
    for (unsigned i = 0; i < 10; i++)
        CHECK_EQUAL(push("a", "0123456789abcdef", 16, 0), 0);

    CHECK_EQUAL(ds_reader_take(&reader, 3, HUGE_BATCH, &batch), 0);
    CHECK_EQUAL(count_records(&batch.chunks), 3);
    ds_batch_free(&batch);
    CHECK_EQUAL(ds_reader_take(&reader, ALL, 81, &batch), 0);
    CHECK_EQUAL(count_records(&batch.chunks), 2);
    ds_batch_free(&batch);
    close_both();
}

static void space_is_free_when_the_reader_says_so(void) {
    static const char block[4000];
    open_both();
    while (push("a", block, sizeof block, 0) == 0)
        continue;

    struct ds_batch batch = take_batch();
    CHECK_EQUAL(push("a", block, sizeof block, 0), -EAGAIN);
    ds_ring_free(&reader.ring, &reader.ring.data, batch.chunks.end);

    CHECK_EQUAL(push("a", block, sizeof block, 0), 0);
    ds_batch_free(&batch);
    close_both();
}

static void sleeping_reader_is_woken_once(void) {
    open_both();
    CHECK(!ds_ring_arm(&reader.ring, 0));

    CHECK_EQUAL(push("a", "x", 1, 0), 0);
    CHECK_EQUAL(push("a", "x", 1, 0), 0);

    CHECK_EQUAL(woken, 1);
    CHECK(ds_ring_arm(&reader.ring, 0));
    CHECK_EQUAL(push("a", "x", 1, 0), 0);
    CHECK_EQUAL(woken, 1);
    close_both();
}

static void losses_come_before_the_chunks_behind_them(void) {
    open_both();
    CHECK_EQUAL(push("a", "before", 6, 0), 0);
    note("lost", atomic_load(&producer.control->data.head), DS_RECORD_LAST);
    CHECK_EQUAL(push("a", "behind", 6, 0), 0);

    struct ds_batch first = take_batch(), second = take_batch();

    CHECK_EQUAL(count_records(&first.losses), 0);
    CHECK_EQUAL(count_records(&first.chunks), 1);
    CHECK_EQUAL(count_records(&second.losses), 1);
    CHECK_EQUAL(count_records(&second.chunks), 1);
    ds_batch_free(&first);
    ds_batch_free(&second);
    close_both();
}

static void abandon_notes_are_returned(void) {
    open_both();
    CHECK(ds_ring_reserve_abandon(&producer));
    note("cut", 0, DS_RECORD_ABANDON);

    struct ds_batch batch = take_batch();

    CHECK_EQUAL(count_records(&batch.losses), 1);
    CHECK_EQUAL(atomic_load(&producer.control->abandons), 0);
    ds_batch_free(&batch);
    close_both();
}

/* Otherwise such a note would block all chunks and keep the reader busy. */
static void note_that_points_inside_a_record_holds_nothing_up(void) {
    open_both();
    CHECK_EQUAL(push("a", "0123456789abcdef", 16, 0), 0);
    note("forged", 16, 0);

    expect_text("0123456789abcdef");

    struct ds_batch batch = take_batch();
    CHECK_EQUAL(count_records(&batch.losses), 1);
    ds_batch_free(&batch);
    close_both();
}

static void discard_reaches_the_producer(void) {
    struct ds_message message = {.name = "a", .name_length = 1};
    open_both();

    ds_ring_set_state(&reader.ring, DS_STATE_DISCARD);

    CHECK_EQUAL(ds_ring_push_wait(&producer, &message, ds_clock_ns() + 1000000000u), -EPIPE);
    close_both();
}

static bool reader_not_alive(struct ds_ring *ring) {
    (void)ring;
    return false;
}

static void wait_ends_when_the_reader_is_gone(void) {
    static const char block[4000];
    struct ds_message message = {.name = "a", .name_length = 1, .data = block, .data_length = sizeof block};
    open_both();
    producer.reader_alive = reader_not_alive;
    while (push("a", block, sizeof block, 0) == 0)
        continue;

    CHECK_EQUAL(ds_ring_push_wait(&producer, &message, UINT64_MAX), -EPIPE);

    close_both();
}

/* Holes */

static void hole_ends_the_reading_while_its_producer_lives(void) {
    open_both();
    CHECK_EQUAL(push("a", "whole", 5, 0), 0);
    leave_hole(&producer.data, 160);
    CHECK_EQUAL(push("a", "behind", 6, 0), 0);

    expect_text("whole");
    expect_text("");

    ds_reader_end(&reader);
    struct ds_batch batch = take_batch();
    CHECK_EQUAL(batch.hole_bytes, 160);
    CHECK_EQUAL(count_records(&batch.chunks), 1);
    ds_batch_free(&batch);
    expect_text("");
    close_both();
}

static void hole_at_the_end_is_reported_once(void) {
    struct ds_counters counters;
    open_both();
    CHECK_EQUAL(push("a", "whole", 5, 0), 0);
    leave_hole(&producer.data, 4096);
    atomic_store(&producer.control->callbacks, 2);
    ds_reader_end(&reader);

    expect_text("whole");
    struct ds_batch batch = take_batch();

    CHECK_EQUAL(batch.hole_bytes, 4096);
    ds_ring_free(&reader.ring, &reader.ring.data, batch.chunks.end);
    ds_batch_free(&batch);
    expect_text("");
    ds_reader_count(&reader, &counters);
    CHECK_EQUAL(counters.fill, 0);
    CHECK_EQUAL(counters.lost_chunks[DS_CAUSE_UNFINISHED], 1);
    CHECK_EQUAL(counters.lost_bytes[DS_CAUSE_UNFINISHED], 4096);
    close_both();
}

/* The producer has claimed the rest of the lap and a record, and has published only the pad. */
static void hole_behind_padding_is_passed(void) {
    static const char block[8000];
    open_both();
    for (unsigned i = 0; i < 8; i++)
        CHECK_EQUAL(push("a", block, sizeof block, 0), 0);
    CHECK_EQUAL(atomic_load(&producer.control->data.head) % RING_BYTES, 64512);
    take_text();
    CHECK_EQUAL(push("a", block, sizeof block, 0), 0);
    CHECK_EQUAL(push("a", "behind", 6, 0), 0);
    atomic_store(&((struct ds_record *)(void *)producer.data.base)->stamp, 0);

    expect_text("");
    ds_reader_end(&reader);

    expect_text("behind");
    CHECK_EQUAL(reader.holes, 1);
    close_both();
}

static void callback_that_claimed_nothing_is_counted_too(void) {
    struct ds_counters counters;
    open_both();
    CHECK_EQUAL(push("a", "whole", 5, 0), 0);
    CHECK_EQUAL(push("a", "cut off", 7, DS_RECORD_MORE), 0);
    atomic_store(&producer.control->callbacks, 4);
    atomic_store(&producer.control->lost_chunks[DS_CAUSE_FULL], 1);
    ds_reader_end(&reader);

    take_text();

    ds_reader_count(&reader, &counters);
    CHECK_EQUAL(counters.lost_chunks[DS_CAUSE_UNFINISHED], 2);
    close_both();
}

static void hole_among_notes_is_an_unnamed_loss(void) {
    struct ds_counters counters;
    open_both();
    leave_hole(&producer.notes, 64);
    note("known", 0, 0);
    ds_reader_end(&reader);

    struct ds_batch batch = take_batch();

    CHECK_EQUAL(count_records(&batch.losses), 1);
    ds_reader_count(&reader, &counters);
    CHECK_EQUAL(counters.unnamed, 1);
    ds_batch_free(&batch);
    close_both();
}

/* Damage */

static void good_records_come_before_the_damage(void) {
    struct ds_batch batch;
    open_both();
    CHECK_EQUAL(push("a", "good", 4, 0), 0);
    CHECK_EQUAL(push("a", "bad", 3, 0), 0);
    ((struct ds_record *)(void *)(producer.data.base + 80))->length = 17;

    expect_text("good");
    CHECK_EQUAL(ds_reader_take(&reader, ALL, HUGE_BATCH, &batch), -EBADMSG);

    ds_batch_free(&batch);
    close_both();
}

static void head_that_is_out_of_line_is_refused(void) {
    open_both();
    atomic_store(&producer.control->data.head, RING_BYTES - 8);

    CHECK_EQUAL(push("a", "x", 1, 0), -EBADMSG);

    close_both();
}

static void head_that_goes_back_holds_nothing_up(void) {
    open_both();
    CHECK_EQUAL(push("a", "one", 3, 0), 0);
    expect_text("one");
    CHECK_EQUAL(push("a", "two", 3, 0), 0);
    atomic_store(&producer.control->data.head, 0);

    expect_text("two");

    close_both();
}

static void run_all(void) {
    records_come_as_they_were_pushed();
    many_laps_pass();
    copy_does_not_change_with_the_ring();
    limits_bound_a_batch();
    space_is_free_when_the_reader_says_so();
    sleeping_reader_is_woken_once();
    losses_come_before_the_chunks_behind_them();
    abandon_notes_are_returned();
    note_that_points_inside_a_record_holds_nothing_up();
    discard_reaches_the_producer();
    wait_ends_when_the_reader_is_gone();
    hole_ends_the_reading_while_its_producer_lives();
    hole_at_the_end_is_reported_once();
    hole_behind_padding_is_passed();
    callback_that_claimed_nothing_is_counted_too();
    hole_among_notes_is_an_unnamed_loss();
    good_records_come_before_the_damage();
    head_that_is_out_of_line_is_refused();
    head_that_goes_back_holds_nothing_up();
}

int main(void) {
    CHECK_EQUAL(close(mkstemp(path)), 0);
    run_all();
    in_file = true;
    run_all();
    unlink(path);
    return 0;
}
