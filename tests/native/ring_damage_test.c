/* What another process may have written into the ring: every number in a
 * record is checked before it is used. */
#include <errno.h>

#include "reading.h"

#define RING_BYTES DS_RING_MIN_BYTES
#define NAME_LENGTH 5u
#define DATA_LENGTH 100u
#define RECORD_LENGTH 176u /* 48 + 5 rounded up to 64, and 100 rounded up to 112 */

static struct ds_ring ring;

/* Pushes an intact record, and returns where it is in the ring. */
static struct ds_record *push_sound(void) {
    static const uint8_t payload[DATA_LENGTH];
    struct ds_message message = {.name = "sound",
                                 .name_length = NAME_LENGTH,
                                 .data = payload,
                                 .data_length = DATA_LENGTH,
                                 .offset = 0};
    CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
    CHECK_EQUAL(ds_ring_push(&ring, &ring.data, &message), 0);
    struct ds_record *record = (struct ds_record *)(void *)ring.data.base;
    CHECK_EQUAL(record->length, RECORD_LENGTH);
    return record;
}

static void expect(int found) {
    struct ds_message view;
    uint64_t position = 0;
    CHECK_EQUAL(ds_ring_peek(&ring, &ring.data, &position, &view), found);
    if (found != 1)
        CHECK_EQUAL(position, 0);
    ds_ring_destroy(&ring);
}

static void damaged_stamp_is_no_record(void) {
    for (unsigned bit = 0; bit < 64; bit++) {
        struct ds_record *record = push_sound();
        atomic_fetch_xor(&record->stamp, (uint64_t)1 << bit);
        expect(0);
    }
}

static void damaged_length_is_found(void) {
    const uint32_t lengths[] = {0,
                                1,
                                16,
                                32,
                                RECORD_LENGTH - 16,
                                RECORD_LENGTH - 1,
                                RECORD_LENGTH + 1,
                                RECORD_LENGTH + 16,
                                RING_BYTES,
                                RING_BYTES + 16,
                                UINT32_MAX - 15,
                                UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        push_sound()->length = lengths[i];
        expect(-EBADMSG);
    }
}

/* A producer that writes more records than a ring has room for would keep its reader busy. */
static void record_that_is_shorter_than_the_least_is_found(void) {
    struct ds_message message = {.name = "n", .name_length = 1}, view;
    uint64_t position = 0;
    CHECK_EQUAL(ds_ring_create(&ring, 4u << 20, NULL), 0);
    CHECK_EQUAL(ds_ring_push(&ring, &ring.data, &message), 0);
    CHECK_EQUAL(ds_ring_peek(&ring, &ring.data, &position, &view), 1);
    CHECK_EQUAL(position, 1024);

    ((struct ds_record *)(void *)ring.data.base)->length = 64; /* which its content takes */
    position = 0;
    CHECK_EQUAL(ds_ring_peek(&ring, &ring.data, &position, &view), -EBADMSG);
    ds_ring_destroy(&ring);
}

static void damaged_name_length_is_found(void) {
    const uint32_t lengths[] = {0, 17, 4095, 4096, RING_BYTES, UINT32_MAX - 60, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        push_sound()->name_length = lengths[i];
        expect(-EBADMSG);
    }
    struct ds_record *record = push_sound();
    record->name_length = 0;
    record->data_length = DATA_LENGTH + 16; /* so that the lengths agree */
    expect(-EBADMSG);
}

static void damaged_data_length_is_found(void) {
    const uint32_t lengths[] = {0,          DATA_LENGTH - 16, DATA_LENGTH + 16,
                                RING_BYTES, UINT32_MAX - 70,  UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        push_sound()->data_length = lengths[i];
        expect(-EBADMSG);
    }
}

static void damaged_flags_are_found(void) {
    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t flag = 1u << bit;
        push_sound()->flags = flag;
        expect(flag == DS_RECORD_LAST || flag == DS_RECORD_MORE ? 1 : -EBADMSG);
    }
}

static void damaged_offset_is_found(void) {
    const int64_t offsets[] = {INT64_MIN, -2, INT64_MAX, INT64_MAX - DATA_LENGTH + 1};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        push_sound()->offset = offsets[i];
        expect(-EBADMSG);
    }
    push_sound()->offset = INT64_MAX - DATA_LENGTH;
    expect(1);
}

static void padding_ends_where_its_lap_does(void) {
    const uint32_t lengths[] = {16, RING_BYTES - 16, RING_BYTES + 16, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct ds_record *record = push_sound();
        record->flags = DS_RECORD_PAD;
        record->length = lengths[i];
        expect(-EBADMSG);
    }
}

static void damaged_note_is_found_too(void) {
    struct ds_message view;
    struct ds_message note = {.name = "n", .name_length = 1};
    CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
    CHECK_EQUAL(ds_ring_push(&ring, &ring.notes, &note), 0);

    ((struct ds_record *)(void *)ring.notes.base)->name_length = 1 << 20;

    CHECK_EQUAL(ds_ring_peek(&ring, &ring.notes, &ring.notes.read, &view), -EBADMSG);
    ds_ring_destroy(&ring);
}

static void flags_of_notes_are_their_own(void) {
    for (unsigned bit = 0; bit < 32; bit++) {
        struct ds_message view;
        struct ds_message note = {.name = "n", .name_length = 1};
        uint32_t flag = 1u << bit;
        CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), 0);
        CHECK_EQUAL(ds_ring_push(&ring, &ring.notes, &note), 0);

        ((struct ds_record *)(void *)ring.notes.base)->flags = flag;

        CHECK_EQUAL(ds_ring_peek(&ring, &ring.notes, &ring.notes.read, &view),
                    flag == DS_RECORD_LAST || flag == DS_RECORD_ABANDON ? 1 : -EBADMSG);
        ds_ring_destroy(&ring);
    }
}

/* Random words over whole records: the reader stays inside the ring. */
static void random_damage_never_leads_outside(void) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (unsigned round = 0; round < 500; round++) {
        uint32_t *words = (uint32_t *)(void *)push_sound();
        for (unsigned hits = 0; hits < 3; hits++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            words[2 + (state >> 60) % 10] = (uint32_t)(state >> 20);
        }
        struct ds_message view;
        if (ds_ring_peek(&ring, &ring.data, &ring.data.read, &view) == 1) {
            const uint8_t *name = (const uint8_t *)view.name, *data = view.data;
            CHECK(name >= ring.data.base);
            CHECK(name + view.name_length <= data);
            CHECK(data + view.data_length <= ring.data.base + ring.data.size);
        }
        ds_ring_destroy(&ring);
    }
}

int main(void) {
    push_sound();
    expect(1);
    damaged_stamp_is_no_record();
    damaged_length_is_found();
    record_that_is_shorter_than_the_least_is_found();
    damaged_name_length_is_found();
    damaged_data_length_is_found();
    damaged_flags_are_found();
    damaged_offset_is_found();
    padding_ends_where_its_lap_does();
    damaged_note_is_found_too();
    flags_of_notes_are_their_own();
    random_damage_never_leads_outside();
    return 0;
}
