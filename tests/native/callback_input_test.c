/* What the runtime may pass to the callback. Every chunk ends at the last byte
 * that may be touched, so a read past `len` crashes. */
#include "chunks.h"
#include "dumpstream/callback.h"
#include "reading.h"

#define MAX_FILE_BYTES 100000u

static struct ds_ring ring;

static void begin(void) {
    const struct ds_policy policy = {.max_file_bytes = MAX_FILE_BYTES};
    CHECK_EQUAL(ds_ring_create(&ring, DS_RING_MIN_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(&ring, &policy), 0);
}

static void end(void) {
    CHECK_EQUAL(ds_detach(&ring, 0), 0);
    ds_ring_destroy(&ring);
}

/* Checks that exactly one chunk was lost since the ring was made. */
static void expect_one_loss(enum ds_cause cause, uint64_t bytes, bool named) {
    struct ds_control *control = ring.control;
    for (int i = 0; i < DS_CAUSE_COUNT; i++)
        CHECK_EQUAL(atomic_load(&control->lost_chunks[i]), i == (int)cause);
    CHECK_EQUAL(atomic_load(&control->lost_bytes[cause]), bytes);
    CHECK_EQUAL(atomic_load(&control->unnamed_chunks), !named);
    CHECK_EQUAL(atomic_load(&control->callbacks), 1);
    CHECK(is_empty(&ring, &ring.data));
    if (named) {
        struct ds_message note = take(&ring, &ring.notes);
        CHECK(is_named(&note, "file"));
        CHECK_EQUAL(note.flag, cause);
        CHECK_EQUAL(note.offset, bytes);
    }
    CHECK(is_empty(&ring, &ring.notes));
}

static void missing_chunk_is_counted(void) {
    begin();

    CHECK(ds_on_chunk(NULL, 5000) != 0);

    expect_one_loss(DS_CAUSE_NULL_CHUNK, 0, false);
    end();
}

static void length_that_does_not_cover_the_head_is_counted(void) {
    const int32_t lengths[] = {INT32_MIN, -1, 0, 1, 4095, 4096, CHUNK_HEAD - 1};
    struct guarded memory = guarded_create(sizeof(acldumpChunk));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t readable = lengths[i] < 0 ? 0 : (size_t)lengths[i] / 8 * 8;
        begin();

        CHECK(ds_on_chunk((acldumpChunk *)(void *)(guarded_end(&memory) - readable), lengths[i]) != 0);

        expect_one_loss(DS_CAUSE_BAD_LENGTH, 0, false);
        end();
    }
    guarded_destroy(&memory);
}

static void payload_that_the_length_does_not_cover_is_not_read(void) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk) + 100);
    const uint32_t promised[] = {101, 4000, 70000, 0x7fffffff, UINT32_MAX};
    for (size_t i = 0; i < sizeof promised / sizeof *promised; i++) {
        acldumpChunk *chunk = chunk_at_end(&memory, "file", 100);
        chunk->bufLen = promised[i];
        begin();

        CHECK(ds_on_chunk(chunk, CHUNK_HEAD + 100) != 0);

        expect_one_loss(DS_CAUSE_BAD_LENGTH, promised[i], true);
        end();
    }
    guarded_destroy(&memory);
}

static void length_with_or_without_the_tail_of_the_struct_is_accepted(void) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk) + 100);
    for (uint32_t slack = 0; slack <= 4; slack += 4) {
        acldumpChunk *chunk = chunk_at_end(&memory, "file", 100);
        chunk->bufLen = 100 - slack;
        begin();

        CHECK_EQUAL(ds_on_chunk(chunk, CHUNK_HEAD + 100), 0);

        struct ds_message view = take(&ring, &ring.data);
        CHECK_EQUAL(view.data_length, 100 - slack);
        CHECK(memcmp(view.data, (uint8_t *)chunk + CHUNK_HEAD, view.data_length) == 0);
        end();
    }
    guarded_destroy(&memory);
}

static void empty_chunk_is_a_chunk(void) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk));
    acldumpChunk *chunk = chunk_at_end(&memory, "file", 4);
    chunk->bufLen = 0;
    begin();

    CHECK_EQUAL(ds_on_chunk(chunk, CHUNK_HEAD), 0);

    CHECK_EQUAL(take(&ring, &ring.data).data_length, 0);
    end();
    guarded_destroy(&memory);
}

static void name_is_stored_up_to_its_nul_whatever_follows(void) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk));
    for (size_t length = 1; length <= DS_NAME_MAX; length += 1 + length / 3) {
        acldumpChunk *chunk = chunk_at_end(&memory, "", 4);
        memset(chunk->fileName, 'n', sizeof chunk->fileName);
        chunk->fileName[length] = '\0';
        begin();

        CHECK_EQUAL(ds_on_chunk(chunk, CHUNK_HEAD + 4), 0);

        struct ds_message view = take(&ring, &ring.data);
        CHECK_EQUAL(view.name_length, length);
        CHECK(memcmp(view.name, chunk->fileName, length) == 0);
        end();
    }
    guarded_destroy(&memory);
}

static void longest_name_is_accepted_and_endless_or_empty_ones_are_counted(void) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk));
    acldumpChunk *chunk = chunk_at_end(&memory, "", 4);

    begin();
    CHECK(ds_on_chunk(chunk, CHUNK_HEAD + 4) != 0);
    expect_one_loss(DS_CAUSE_BAD_NAME, 4, false);
    end();

    memset(chunk->fileName, 'n', sizeof chunk->fileName);
    begin();
    CHECK(ds_on_chunk(chunk, CHUNK_HEAD + 4) != 0);
    expect_one_loss(DS_CAUSE_BAD_NAME, 4, false);
    end();

    chunk->fileName[DS_NAME_MAX] = '\0';
    begin();
    CHECK_EQUAL(ds_on_chunk(chunk, CHUNK_HEAD + 4), 0);
    CHECK_EQUAL(take(&ring, &ring.data).name_length, DS_NAME_MAX);
    end();
    guarded_destroy(&memory);
}

static int32_t send_at(int64_t offset) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk) + 100);
    acldumpChunk *chunk = chunk_at_end(&memory, "file", 100);
    chunk->offset = offset;
    int32_t result = ds_on_chunk(chunk, CHUNK_HEAD + 100);
    guarded_destroy(&memory);
    return result;
}

static void offset_below_minus_one_is_counted(void) {
    const int64_t offsets[] = {-2, INT32_MIN, INT64_MIN};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        begin();

        CHECK(send_at(offsets[i]) != 0);

        expect_one_loss(DS_CAUSE_BAD_OFFSET, 100, true);
        end();
    }
}

static void chunk_that_ends_beyond_the_largest_file_is_counted(void) {
    const int64_t offsets[] = {MAX_FILE_BYTES - 99, MAX_FILE_BYTES, INT64_MAX - 50, INT64_MAX};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        begin();

        CHECK(send_at(offsets[i]) != 0);

        expect_one_loss(DS_CAUSE_TOO_LARGE, 100, true);
        end();
    }
}

static void offsets_up_to_the_largest_file_pass_unchanged(void) {
    const int64_t offsets[] = {-1, 0, 1, MAX_FILE_BYTES - 100};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        begin();

        CHECK_EQUAL(send_at(offsets[i]), 0);

        CHECK_EQUAL(take(&ring, &ring.data).offset, offsets[i]);
        end();
    }
}

static void any_nonzero_is_last_and_the_flag_passes_unchanged(void) {
    struct guarded memory = guarded_create(sizeof(acldumpChunk));
    const uint32_t lasts[] = {0, 1, 2, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++) {
        acldumpChunk *chunk = chunk_at_end(&memory, "file", 4);
        chunk->isLastChunk = lasts[i];
        chunk->flag = INT32_MIN + (int32_t)i;
        begin();

        CHECK_EQUAL(ds_on_chunk(chunk, CHUNK_HEAD + 4), 0);

        struct ds_message view = take(&ring, &ring.data);
        CHECK_EQUAL(view.flags, lasts[i] ? DS_RECORD_LAST : 0);
        CHECK_EQUAL(view.flag, INT32_MIN + (int32_t)i);
        end();
    }
    guarded_destroy(&memory);
}

static void parts_that_lie_apart_are_checked_alike(void) {
    begin();
    CHECK(ds_push_chunk("file", 4, NULL, 10, 0, -1, 0) != 0);
    expect_one_loss(DS_CAUSE_BAD_LENGTH, 10, true);
    end();

    begin();
    CHECK(ds_push_chunk("file", 4, "data", INT64_MAX, 0, -1, 0) != 0);
    expect_one_loss(DS_CAUSE_TOO_LARGE, INT64_MAX, true);
    end();
}

static void name_with_a_nul_inside_is_counted(void) {
    const char names[][5] = {"\0ile", "f\0le", "fil\0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        begin();

        CHECK(ds_push_chunk(names[i], 4, "data", 4, 1, -1, 0) != 0);

        expect_one_loss(DS_CAUSE_BAD_NAME, 4, false);
        end();
    }
}

static void length_beyond_what_a_note_can_hold_is_noted_as_the_most_it_can(void) {
    begin();

    CHECK(ds_push_chunk("file", 4, "data", UINT64_MAX, 0, -1, 0) != 0);

    CHECK_EQUAL(take(&ring, &ring.notes).offset, INT64_MAX);
    end();
}

int main(void) {
    missing_chunk_is_counted();
    length_that_does_not_cover_the_head_is_counted();
    payload_that_the_length_does_not_cover_is_not_read();
    length_with_or_without_the_tail_of_the_struct_is_accepted();
    empty_chunk_is_a_chunk();
    name_is_stored_up_to_its_nul_whatever_follows();
    longest_name_is_accepted_and_endless_or_empty_ones_are_counted();
    offset_below_minus_one_is_counted();
    chunk_that_ends_beyond_the_largest_file_is_counted();
    offsets_up_to_the_largest_file_pass_unchanged();
    any_nonzero_is_last_and_the_flag_passes_unchanged();
    parts_that_lie_apart_are_checked_alike();
    name_with_a_nul_inside_is_counted();
    length_beyond_what_a_note_can_hold_is_noted_as_the_most_it_can();
    return 0;
}
