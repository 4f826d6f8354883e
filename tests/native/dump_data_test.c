/* The reader of whole DumpData messages, with untrusted bytes. Each message lies in memory of
 * exactly its length, so that the address sanitizer sees a read past its end. */
#include <string.h>

#include "check.h"
#include "dumpstream/header.h"
#include "random.h"

#define MUTATIONS 200000u

/* Every field of an output, then one of everything else. */
static const uint8_t VALID[] = {
    0x0a, 3,    '2',  '.', '0',                             /* version */
    0x10, 0xb9, 0x60,                                       /* dump_time */
    0x1a, 50,                                               /* output, of which: */
    0x08, 1,    0x10, 2,                                    /*   data_type, format */
    0x1a, 4,    0x0a, 2,   2,    3,                         /*   shape, packed */
    0x22, 9,    0x0a, 1,   'o',  0x10, 1, 0x18, 1, 0x20, 2, /*   original_op */
    0x2a, 2,    'x',  'y',                                  /*   data */
    0x30, 6,                                                /*   size */
    0x3a, 4,    0x08, 6,   0x08, 1,                         /*   original_shape, one by one */
    0x40, 1,    0x48, 5,                                    /*   sub_format, address */
    0x52, 4,    0x08, 1,   0x10, 2,                         /*   dim_range */
    0x58, 9,    0x60, 7,                                    /*   offset, arg_index */
    0xa0, 6,    5,                                          /*   unknown */
    0x22, 4,    0x28, 100, 0x58, 3,                         /* input: size, input_type */
    0x2a, 2,    0x18, 11,                                   /* buffer: size */
    0x32, 2,    'o',  'p',                                  /* op_name */
    0x3a, 6,    0x0a, 1,   'a',  0x12, 1, 'b',              /* attr */
    0x42, 4,    0x08, 0,   0x18, 13,                        /* space: type, size */
    0x4a, 1,    'd',                                        /* dfx_message */
    0xc2, 0x0c, 3,    'n', 'e',  'w',                       /* unknown */
};

static void check_inside(const struct ds_dump_data *message, struct ds_span span) {
    CHECK(!span.at || (span.at >= message->begin && span.length <= (size_t)(message->end - span.at)));
}

static void check_segment(const struct ds_dump_data *message, const struct ds_segment *segment) {
    uint8_t unknown[sizeof VALID];
    CHECK(segment->kind <= DS_SPACE);
    CHECK(segment->shape.count <= DS_MAX_DIMS && segment->original_shape.count <= DS_MAX_DIMS);
    CHECK_EQUAL(segment->range_start.count, segment->range_end.count);
    check_inside(message, segment->data);
    check_inside(message, segment->original_op.name);
    CHECK(ds_unknown_fields(segment->kind, segment->message, unknown) <= segment->message.length);
    CHECK_EQUAL(ds_unknown_fields(segment->kind, segment->message, NULL) > 0, segment->any_unknown);
}

/* Reads a copy of exactly `length` bytes and returns whether it has no fault. */
static bool read_exactly(const uint8_t *bytes, size_t length, unsigned *entries) {
    uint8_t *exact = malloc(length ? length : 1);
    struct ds_dump_data message;
    struct ds_entry entry;
    CHECK(exact);
    memcpy(exact, bytes, length);
    ds_dump_data_begin(&message, exact, length);
    for (*entries = 0; ds_dump_data_next(&message, &entry); (*entries)++) {
        if (entry.kind >= DS_ENTRY_INPUT)
            check_segment(&message, &entry.segment);
    }
    bool good = !message.fault;
    CHECK(good || message.fault_position < length);
    free(exact);
    return good;
}

static void valid_message_is_read_in_full(void) {
    struct ds_dump_data message;
    struct ds_entry entry;
    uint8_t unknown[sizeof VALID];
    ds_dump_data_begin(&message, VALID, sizeof VALID);

    for (int i = 0; i < 3; i++)
        CHECK(ds_dump_data_next(&message, &entry));

    const struct ds_segment *output = &entry.segment;
    CHECK_EQUAL(entry.kind, DS_ENTRY_OUTPUT);
    CHECK_EQUAL(output->data_type * 10 + output->format, 12);
    CHECK_EQUAL(output->shape.count, 2);
    CHECK_EQUAL(output->shape.dim[1], 3);
    CHECK_EQUAL(output->original_shape.dim[0], 6);
    CHECK_EQUAL(output->original_op.format, 2);
    CHECK_EQUAL(output->data.length, 2);
    CHECK_EQUAL(output->size * 100 + output->offset * 10 + output->arg_index, 697);
    CHECK_EQUAL(output->range_end.dim[0], 2);
    CHECK_EQUAL(ds_unknown_fields(DS_OUTPUT, output->message, unknown), 3);
    CHECK(memcmp(unknown, "\xa0\x06\x05", 3) == 0);
}

static void every_truncation_is_a_fault_or_ends_between_fields(void) {
    unsigned most = 0;
    for (size_t length = 0; length <= sizeof VALID; length++) {
        unsigned entries;

        bool good = read_exactly(VALID, length, &entries);

        CHECK(entries == most || (good && entries == most + 1));
        most = entries;
    }
    CHECK_EQUAL(most, 10);
}

static void no_mutation_leads_outside(void) {
    unsigned good = 0;
    for (unsigned round = 0; round < MUTATIONS; round++) {
        uint8_t bytes[sizeof VALID];
        unsigned entries;
        memcpy(bytes, VALID, sizeof bytes);
        for (uint32_t hits = 1 + next_random(4); hits > 0; hits--)
            bytes[next_random(sizeof bytes)] = (uint8_t)(next_random(3) ? next_random(256) : 0xff);

        good += read_exactly(bytes, sizeof bytes - next_random(3) * next_random(20), &entries);
    }
    CHECK(good > MUTATIONS / 100 && good < MUTATIONS - MUTATIONS / 100);
}

int main(void) {
    valid_message_is_read_in_full();
    every_truncation_is_a_fault_or_ends_between_fields();
    no_mutation_leads_outside();
    return 0;
}
