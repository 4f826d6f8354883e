/* The ring from one thread: space, laps, wake-ups, creation. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reading.h"

#define RING_BYTES DS_RING_MIN_BYTES
/* Together with a name of one byte, this makes a record of a sixteenth of the ring. */
#define SIXTEENTH (RING_BYTES / 16)
#define SIXTEENTH_DATA (SIXTEENTH - 64)

static uint8_t payload[RING_BYTES];

static struct ds_ring make_ring(void) {
    struct ds_ring ring;
    CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
    CHECK_EQUAL(ring.data.size, RING_BYTES);
    return ring;
}

static int push(struct ds_ring *ring, uint64_t sequence, uint32_t data_length) {
    struct ds_message message = {.name = "n",
                                 .name_length = 1,
                                 .data = payload,
                                 .data_length = data_length,
                                 .sequence = sequence,
                                 .offset = -1};
    return ds_ring_push(ring, &ring->data, &message);
}

static uint64_t fill(const struct ds_ring *ring) {
    return atomic_load(&ring->control->data.head) - atomic_load(&ring->control->data.tail);
}

static bool woken(const struct ds_ring *ring) {
    uint64_t count;
    return read(ring->event_fd, &count, sizeof count) == (ssize_t)sizeof count;
}

static void every_field_of_a_record_comes_out(void) {
    struct ds_ring ring = make_ring();
    struct ds_message message = {.name = "model/op.0",
                                 .name_length = 10,
                                 .data = "some bytes",
                                 .data_length = 10,
                                 .sequence = 7,
                                 .offset = (int64_t)1 << 40,
                                 .flags = DS_RECORD_LAST,
                                 .flag = -3};

    CHECK_EQUAL(ds_ring_push(&ring, &ring.data, &message), 0);
    struct ds_message view = take(&ring, &ring.data);

    CHECK(is_named(&view, "model/op.0"));
    CHECK_EQUAL(view.data_length, 10);
    CHECK(memcmp(view.data, "some bytes", 10) == 0);
    CHECK_EQUAL((uintptr_t)view.data % DS_RECORD_ALIGN, 0);
    CHECK_EQUAL(view.sequence, 7);
    CHECK_EQUAL(view.offset, (int64_t)1 << 40);
    CHECK_EQUAL(view.flags, DS_RECORD_LAST);
    CHECK_EQUAL(view.flag, -3);
    CHECK(is_empty(&ring, &ring.data));
    ds_ring_destroy(&ring);
}

static void sixteen_sixteenths_fill_the_ring_exactly(void) {
    struct ds_ring ring = make_ring();
    for (uint64_t i = 0; i < 16; i++)
        CHECK_EQUAL(push(&ring, i, SIXTEENTH_DATA), 0);

    CHECK_EQUAL(fill(&ring), RING_BYTES);
    CHECK_EQUAL(push(&ring, 16, 0), -EAGAIN);
    CHECK_EQUAL(fill(&ring), RING_BYTES);

    CHECK_EQUAL(take(&ring, &ring.data).sequence, 0);
    CHECK_EQUAL(push(&ring, 16, 0), -EAGAIN);
    free_read(&ring, &ring.data);
    CHECK_EQUAL(push(&ring, 16, SIXTEENTH_DATA), 0);
    CHECK_EQUAL(push(&ring, 17, 0), -EAGAIN);
    for (uint64_t i = 1; i <= 16; i++)
        CHECK_EQUAL(take(&ring, &ring.data).sequence, i);
    ds_ring_destroy(&ring);
}

static void ring_has_room_for_as_many_records_as_kibibytes(void) {
    const uint64_t sizes[] = {4u << 20, 16u << 20, 100u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ds_ring ring;
        uint64_t count = 0;
        CHECK_EQUAL(ds_ring_create(&ring, sizes[i], NULL), 0);
        while (push(&ring, count, 1) == 0)
            count++;
        CHECK_EQUAL(count, sizes[i] >> 10);
        CHECK_EQUAL(drain(&ring, &ring.data), count);
        ds_ring_destroy(&ring);
    }
}

static void small_ring_has_room_for_4096_records(void) {
    struct ds_ring ring;
    uint64_t count = 0;
    CHECK_EQUAL(ds_ring_create(&ring, 1u << 20, NULL), 0);
    while (push(&ring, count, 1) == 0)
        count++;
    CHECK_EQUAL(count, 4096);
    ds_ring_destroy(&ring);
}

static void record_that_does_not_fit_the_rest_of_a_lap_starts_the_next(void) {
    struct ds_ring ring = make_ring();
    for (uint64_t i = 0; i < 15; i++)
        CHECK_EQUAL(push(&ring, i, SIXTEENTH_DATA), 0);
    for (uint64_t i = 0; i < 2; i++)
        take(&ring, &ring.data);
    free_read(&ring, &ring.data);

    CHECK_EQUAL(push(&ring, 15, SIXTEENTH_DATA + 1), 0);

    /* A pad of a sixteenth, and a record of a sixteenth and 16 bytes. */
    CHECK_EQUAL(fill(&ring), RING_BYTES - SIXTEENTH + DS_RECORD_ALIGN);
    for (uint64_t i = 2; i < 15; i++)
        CHECK_EQUAL(take(&ring, &ring.data).sequence, i);
    struct ds_message view = take(&ring, &ring.data);
    CHECK_EQUAL(view.sequence, 15);
    CHECK_EQUAL(ring.data.read, RING_BYTES + SIXTEENTH + DS_RECORD_ALIGN);
    CHECK(view.data == ring.data.base + 64);
    free_read(&ring, &ring.data);
    CHECK_EQUAL(fill(&ring), 0);
    ds_ring_destroy(&ring);
}

static void padding_is_not_claimed_unless_the_record_fits_too(void) {
    struct ds_ring ring = make_ring();
    for (uint64_t i = 0; i < 15; i++)
        CHECK_EQUAL(push(&ring, i, SIXTEENTH_DATA), 0);
    take(&ring, &ring.data);
    free_read(&ring, &ring.data);

    CHECK_EQUAL(push(&ring, 15, SIXTEENTH_DATA + 1), -EAGAIN);

    CHECK_EQUAL(fill(&ring), RING_BYTES - 2 * SIXTEENTH);
    CHECK_EQUAL(push(&ring, 15, SIXTEENTH_DATA), 0);
    ds_ring_destroy(&ring);
}

static void records_survive_many_laps_of_odd_sizes(void) {
    struct ds_ring ring = make_ring();
    uint64_t pushed = 0, taken = 0;
    for (unsigned round = 0; round < 2000; round++) {
        while (push(&ring, pushed, (uint32_t)(pushed * 769 % 9001)) == 0)
            pushed++;
        for (unsigned i = 0; i <= round % 7 && taken < pushed; i++, taken++) {
            struct ds_message view = take(&ring, &ring.data);
            CHECK_EQUAL(view.sequence, taken);
            CHECK_EQUAL(view.data_length, taken * 769 % 9001);
            CHECK(memcmp(view.data, payload, view.data_length) == 0);
        }
        free_read(&ring, &ring.data);
        CHECK(fill(&ring) <= RING_BYTES);
    }
    CHECK(ring.data.read > 100 * (uint64_t)RING_BYTES);
    ds_ring_destroy(&ring);
}

static void stamps_of_an_earlier_lap_never_match(void) {
    struct ds_ring ring = make_ring();
    for (uint64_t lap = 0; lap < 20; lap++) {
        for (uint64_t i = 0; i < 16; i++) {
            CHECK(is_empty(&ring, &ring.data));
            CHECK_EQUAL(push(&ring, i, SIXTEENTH_DATA), 0);
            take(&ring, &ring.data);
        }
        free_read(&ring, &ring.data);
        /* There are sixteen whole records, each with its own stamp. */
        for (uint64_t i = 0; i < 16; i++) {
            struct ds_message view;
            uint64_t position = ring.data.read + i * SIXTEENTH;
            CHECK_EQUAL(ds_ring_peek(&ring, &ring.data, &position, &view), 0);
        }
    }
    ds_ring_destroy(&ring);
}

/* Each word has as its value its own position in the next lap. */
static void payload_that_looks_like_positions_is_no_stamp(void) {
    struct ds_ring ring = make_ring();
    uint64_t forged[SIXTEENTH_DATA / 8];
    struct ds_message message = {
        .name = "n", .name_length = 1, .data = forged, .data_length = sizeof forged, .offset = -1};
    for (uint64_t lap = 0; lap < 8; lap++) {
        for (uint64_t i = 0; i < 16; i++) {
            for (size_t word = 0; word < sizeof forged / 8; word++)
                forged[word] = ring.data.read + RING_BYTES + 64 + word * 8 + 1;
            CHECK_EQUAL(ds_ring_push(&ring, &ring.data, &message), 0);
            take(&ring, &ring.data);
        }
        free_read(&ring, &ring.data);
        for (uint64_t at = 0; at < RING_BYTES; at += DS_RECORD_ALIGN) {
            struct ds_message view;
            uint64_t position = ring.data.read + at;
            CHECK_EQUAL(ds_ring_peek(&ring, &ring.data, &position, &view), 0);
        }
    }
    ds_ring_destroy(&ring);
}

static void notes_have_space_when_the_data_lane_is_full(void) {
    struct ds_ring ring = make_ring();
    while (push(&ring, 0, SIXTEENTH_DATA) == 0)
        continue;
    struct ds_message note = {.name = "lost", .name_length = 4, .offset = 99};

    CHECK_EQUAL(ds_ring_push(&ring, &ring.notes, &note), 0);

    struct ds_message view = take(&ring, &ring.notes);
    CHECK(is_named(&view, "lost"));
    CHECK_EQUAL(view.offset, 99);
    CHECK_EQUAL(drain(&ring, &ring.data), 16);
    ds_ring_destroy(&ring);
}

static void sleeping_reader_is_woken_once_by_the_very_next_record(void) {
    struct ds_ring ring = make_ring();
    CHECK(!ds_ring_arm(&ring, 0));

    push(&ring, 0, 0);
    push(&ring, 1, 0);

    CHECK_EQUAL(atomic_load(&ring.control->wakeups), 1);
    CHECK(woken(&ring));
    CHECK(!woken(&ring));
    ds_ring_destroy(&ring);
}

static void distant_wake_up_comes_when_a_record_reaches_it(void) {
    struct ds_ring ring = make_ring();
    CHECK(!ds_ring_arm(&ring, 3 * SIXTEENTH));

    push(&ring, 0, SIXTEENTH_DATA);
    push(&ring, 1, SIXTEENTH_DATA);
    CHECK(!woken(&ring));
    push(&ring, 2, SIXTEENTH_DATA);

    CHECK(woken(&ring));
    ds_ring_destroy(&ring);
}

static void reader_that_does_not_sleep_is_not_woken(void) {
    struct ds_ring ring = make_ring();
    push(&ring, 0, 0);
    CHECK(ds_ring_arm(&ring, 0)); /* a record is there: the reader stays awake */
    push(&ring, 1, 0);
    drain(&ring, &ring.data);
    CHECK(!ds_ring_arm(&ring, 0));
    ds_ring_disarm(&ring);
    push(&ring, 2, 0);

    CHECK_EQUAL(atomic_load(&ring.control->wakeups), 0);
    CHECK(!woken(&ring));
    ds_ring_destroy(&ring);
}

static void note_does_not_wake_the_reader(void) {
    struct ds_ring ring = make_ring();
    struct ds_message note = {.name = "n", .name_length = 1};
    CHECK(!ds_ring_arm(&ring, 0));

    CHECK_EQUAL(ds_ring_push(&ring, &ring.notes, &note), 0);

    CHECK(!woken(&ring));
    ds_ring_destroy(&ring);
}

static void waiting_for_space_ends_at_the_deadline_or_with_the_ring(void) {
    struct ds_ring ring = make_ring();
    while (push(&ring, 0, SIXTEENTH_DATA) == 0)
        continue;
    struct ds_message message = {.name = "n", .name_length = 1, .offset = -1};
    uint64_t deadline = ds_clock_ns() + 5000000;

    CHECK_EQUAL(ds_ring_push_wait(&ring, &message, deadline), -ETIMEDOUT);
    CHECK(ds_clock_ns() >= deadline);
    ds_ring_set_state(&ring, DS_STATE_DISCARD);
    CHECK_EQUAL(ds_ring_push_wait(&ring, &message, UINT64_MAX), -EPIPE);

    CHECK_EQUAL(atomic_load(&ring.control->waiters), 0);
    ds_ring_destroy(&ring);
}

static void ring_in_a_file_is_private_allocated_and_never_replaces_one(void) {
    char directory[] = "/tmp/dumpstream-ring-XXXXXX";
    CHECK(mkdtemp(directory));
    char path[sizeof directory + 16];
    snprintf(path, sizeof path, "%s/ring", directory);
    struct ds_ring ring, other;
    struct stat status;

    CHECK_EQUAL(ds_ring_create(&ring, 1u << 20, path), 0);
    CHECK_EQUAL(ds_ring_create(&other, 1u << 20, path), -EEXIST);

    CHECK_EQUAL(stat(path, &status), 0);
    CHECK_EQUAL(status.st_mode & 07777, 0600);
    CHECK(status.st_size >= 1 << 20);
    CHECK(status.st_blocks * 512 >= status.st_size);
    CHECK_EQUAL(push(&ring, 0, 100), 0);
    CHECK_EQUAL(drain(&ring, &ring.data), 1);
    ds_ring_destroy(&ring);
    unlink(path);
    rmdir(directory);
}

static void sizes_that_make_no_ring_are_refused(void) {
    struct ds_ring ring;

    CHECK_EQUAL(ds_ring_create(&ring, 0, NULL), -EINVAL);
    CHECK_EQUAL(ds_ring_create(&ring, DS_RING_MIN_BYTES - 1, NULL), -EINVAL);
    CHECK_EQUAL(ds_ring_create(&ring, UINT64_MAX, NULL), -EINVAL);
}

int main(void) {
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 31);
    every_field_of_a_record_comes_out();
    sixteen_sixteenths_fill_the_ring_exactly();
    ring_has_room_for_as_many_records_as_kibibytes();
    small_ring_has_room_for_4096_records();
    record_that_does_not_fit_the_rest_of_a_lap_starts_the_next();
    padding_is_not_claimed_unless_the_record_fits_too();
    records_survive_many_laps_of_odd_sizes();
    stamps_of_an_earlier_lap_never_match();
    payload_that_looks_like_positions_is_no_stamp();
    notes_have_space_when_the_data_lane_is_full();
    sleeping_reader_is_woken_once_by_the_very_next_record();
    distant_wake_up_comes_when_a_record_reaches_it();
    reader_that_does_not_sleep_is_not_woken();
    note_does_not_wake_the_reader();
    waiting_for_space_ends_at_the_deadline_or_with_the_ring();
    ring_in_a_file_is_private_allocated_and_never_replaces_one();
    sizes_that_make_no_ring_are_refused();
    return 0;
}
