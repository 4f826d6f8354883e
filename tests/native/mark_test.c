/* Marks: the step that a program has begun, between its chunks. Once in memory and once in a file. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "dumpstream/callback.h"
#include "pair.h"

#define MARKS 2000

static void begin(bool block) {
    const struct ds_policy policy = {
        .block = block, .block_limit_ns = 60000000000u, .max_file_bytes = 1 << 20};
    open_both();
    CHECK_EQUAL(ds_attach(&producer, &policy), 0);
}

static void end(void) {
    CHECK_EQUAL(ds_detach(&producer, 0), 0);
    close_both();
}

static int32_t send(const char *name, uint64_t length) {
    static uint8_t payload[8192];
    return ds_push_chunk(name, strlen(name), payload, length, 1, -1, 0);
}

/* Takes a batch, frees its space, and returns how many chunks it has; all of them are of `step`. */
static unsigned take_of(int64_t step) {
    struct ds_batch batch = take_batch();
    struct ds_message view;
    uint64_t position = batch.chunks.start;
    unsigned count = 0;
    for (; ds_records_next(&batch.chunks, &position, &view) == 1; count++)
        CHECK(view.name_length > 0);
    CHECK_EQUAL(batch.step, step);
    ds_ring_free(&reader.ring, &reader.ring.data, batch.chunks.end);
    ds_batch_free(&batch);
    return count;
}

static struct ds_message mark(int64_t step, uint64_t sequence) {
    return (struct ds_message){.flags = DS_RECORD_MARK, .offset = step, .sequence = sequence};
}

static void push_mark(int64_t step, uint64_t sequence) {
    struct ds_message message = mark(step, sequence);
    CHECK_EQUAL(ds_ring_push(&producer, &producer.data, &message), 0);
}

static void chunks_between_two_marks_are_a_batch_of_their_step(void) {
    begin(false);

    send("a", 1);
    CHECK_EQUAL(ds_mark_step(7), 0);
    send("b", 1);
    send("c", 1);
    CHECK_EQUAL(ds_mark_step(8), 0);
    CHECK_EQUAL(ds_mark_step(0), 0);
    send("d", 1);

    CHECK_EQUAL(take_of(DS_NO_STEP), 1);
    CHECK_EQUAL(take_of(7), 2);
    CHECK_EQUAL(take_of(0), 1);
    CHECK_EQUAL(take_of(0), 0);
    CHECK_EQUAL(reader.finished, 4);
    CHECK_EQUAL(atomic_load(&producer.control->callbacks), 4);
    CHECK_EQUAL(atomic_load(&producer.control->data.head), reader.ring.data.freed);
    end();
}

static void steps_out_of_range_and_without_a_ring_are_refused(void) {
    begin(false);
    CHECK_EQUAL(ds_mark_step(-1), -EINVAL);
    CHECK_EQUAL(ds_mark_step(DS_STEP_MAX + 1), -EINVAL);
    CHECK_EQUAL(ds_mark_step(DS_STEP_MAX), 0);
    CHECK_EQUAL(take_of(DS_STEP_MAX), 0);
    end();
    uint64_t late = ds_late_calls();
    CHECK_EQUAL(ds_mark_step(1), -ENOTCONN);
    CHECK_EQUAL(ds_late_calls(), late);
}

static void mark_of_the_ring_before_does_not_come_into_the_next(void) {
    begin(false);
    while (send("full", 1024) == 0)
        continue;
    while (push("f", "", 0, 0) == 0)
        continue;
    CHECK_EQUAL(ds_mark_step(3), 0);
    end();

    begin(false);
    CHECK_EQUAL(send("a", 1), 0);
    CHECK_EQUAL(take_of(DS_NO_STEP), 1);
    end();
}

/* A mark that found no space goes before the next chunk, which is lost if there is still none. */
static void mark_that_finds_no_space_goes_before_the_next_chunk(void) {
    begin(false);
    CHECK_EQUAL(ds_mark_step(1), 0);
    while (push("f", "", 0, 0) == 0)
        continue;

    CHECK_EQUAL(ds_mark_step(2), 0);
    CHECK(send("lost", 0) != 0);
    CHECK_EQUAL(atomic_load(&producer.control->lost_chunks[DS_CAUSE_FULL]), 1);
    CHECK_EQUAL(ds_mark_step(3), 0);
    CHECK(take_of(1) > 100);
    CHECK_EQUAL(send("next", 1), 0);

    CHECK_EQUAL(take_of(3), 1);
    end();
}

static void *send_one(void *result) {
    *(int32_t *)result = send("waits", 1);
    return NULL;
}

static void chunk_behind_a_mark_waits_for_space_for_both(void) {
    pthread_t thread;
    int32_t result = -1;
    begin(true);
    while (push("f", "", 0, 0) == 0)
        continue;
    CHECK_EQUAL(ds_mark_step(5), 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, send_one, &result), 0);
    while (!atomic_load(&producer.control->waiters))
        usleep(1000);
    CHECK(take_of(DS_NO_STEP) > 100);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);

    CHECK_EQUAL(result, 0);
    CHECK_EQUAL(take_of(5), 1);
    end();
}

static void mark_that_comes_late_does_not_undo_a_newer_one(void) {
    open_both();
    push_mark(4, 1);
    push_mark(5, 2);
    push("a", "", 0, 0);
    push_mark(4, 1);
    push("b", "", 0, 0);

    CHECK_EQUAL(take_of(5), 1);
    CHECK_EQUAL(take_of(5), 1);
    close_both();
}

static void loss_before_a_mark_comes_without_the_chunks_behind_it(void) {
    open_both();
    push("a", "", 0, 0);
    struct ds_message note = {.name = "lost",
                              .name_length = 4,
                              .sequence = atomic_load(&producer.control->data.head),
                              .flag = DS_CAUSE_FULL};
    CHECK_EQUAL(ds_ring_push(&producer, &producer.notes, &note), 0);
    push_mark(1, 1);
    push("b", "", 0, 0);

    CHECK_EQUAL(take_of(DS_NO_STEP), 1);
    struct ds_batch batch = take_batch();
    CHECK(batch.losses.end > batch.losses.start);
    CHECK_EQUAL(batch.step, 1);
    ds_batch_free(&batch);
    close_both();
}

static void step_is_unknown_behind_a_hole(void) {
    open_both();
    push_mark(1, 1);
    push("a", "", 0, 0);
    CHECK_EQUAL(take_of(1), 1);
    atomic_fetch_add(&producer.control->data.head, 48);
    push("b", "", 0, 0);
    ds_reader_end(&reader);

    CHECK_EQUAL(take_of(DS_NO_STEP), 1);
    close_both();
}

/* Pushes a forged mark and expects that the reader refuses it. */
static void expect_refusal(struct ds_message message) {
    struct ds_batch batch;
    open_both();
    CHECK_EQUAL(ds_ring_push(&producer, &producer.data, &message), 0);
    CHECK_EQUAL(ds_reader_take(&reader, ALL, HUGE_BATCH, &batch), -EBADMSG);
    ds_batch_free(&batch);
    close_both();
}

static void forged_marks_are_damage(void) {
    struct ds_message forged = mark(-1, 1);
    expect_refusal(forged);
    forged.offset = DS_STEP_MAX + 1;
    expect_refusal(forged);
    forged = mark(1, 1);
    forged.name = "n";
    forged.name_length = 1;
    expect_refusal(forged);
    forged = mark(1, 1);
    forged.data = "d";
    forged.data_length = 1;
    expect_refusal(forged);
    forged = mark(1, 1);
    forged.flags |= DS_RECORD_LAST;
    expect_refusal(forged);

    struct ds_batch batch;
    forged = mark(1, 1);
    open_both();
    CHECK_EQUAL(ds_ring_push(&producer, &producer.notes, &forged), 0);
    CHECK_EQUAL(ds_reader_take(&reader, ALL, HUGE_BATCH, &batch), -EBADMSG);
    ds_batch_free(&batch);
    close_both();
}

static void *mark_and_send(void *failures) {
    for (unsigned i = 0; i < MARKS; i++) {
        *(unsigned *)failures += ds_mark_step(i) != 0;
        *(unsigned *)failures += send("thread", 100) != 0;
    }
    return NULL;
}

/* Reads what is there in place, up to the first mark; returns how many chunks there are. */
static unsigned take_in_place(void) {
    struct ds_batch batch = take_batch();
    struct ds_message view;
    uint64_t next = batch.chunks.start;
    unsigned count = 0;
    for (; ds_records_next(&batch.chunks, &next, &view) == 1 && !(view.flags & DS_RECORD_MARK); count++) {
        CHECK(batch.step >= 0 && batch.step < MARKS);
        reader.ring.data.read = next;
    }
    ds_ring_free(&reader.ring, &reader.ring.data, reader.ring.data.read);
    ds_batch_free(&batch);
    return count;
}

/* Threads that mark at once, with a ring that is often full: every chunk comes, and none is a mark. In
 * the ring of this process: what two mappings synchronise, a sanitizer does not see. */
static void threads_mark_and_send_at_once(void) {
    const struct ds_policy policy = {
        .block = true, .block_limit_ns = 60000000000u, .max_file_bytes = 1 << 20};
    pthread_t threads[3];
    unsigned failures[3] = {0}, count = 0;
    reader = (struct ds_reader){.in_place = true};
    CHECK_EQUAL(ds_ring_create(&reader.ring, RING_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(&reader.ring, &policy), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, mark_and_send, &failures[i]), 0);
    while (count < 3 * MARKS)
        count += take_in_place();
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
        CHECK_EQUAL(failures[i], 0);
    }
    CHECK_EQUAL(ds_detach(&reader.ring, 0), 0);
    ds_ring_destroy(&reader.ring);
}

static void run_all(void) {
    chunks_between_two_marks_are_a_batch_of_their_step();
    steps_out_of_range_and_without_a_ring_are_refused();
    mark_of_the_ring_before_does_not_come_into_the_next();
    mark_that_finds_no_space_goes_before_the_next_chunk();
    chunk_behind_a_mark_waits_for_space_for_both();
    mark_that_comes_late_does_not_undo_a_newer_one();
    loss_before_a_mark_comes_without_the_chunks_behind_it();
    step_is_unknown_behind_a_hole();
    forged_marks_are_damage();
}

int main(void) {
    CHECK_EQUAL(close(mkstemp(path)), 0);
    run_all();
    in_file = true;
    run_all();
    unlink(path);
    threads_mark_and_send_at_once();
    return 0;
}
