/* The header of small devices, with untrusted bytes. Each header lies in memory of exactly its
 * length, so that the address sanitizer sees a read past its end. */
#include <string.h>

#include "check.h"
#include "dumpstream/header.h"
#include "random.h"

#define MUTATIONS 200000u

/* The length of the header, then the magic number, the version, a block of one input and a block of one
 * output. */
static const uint8_t VALID[] = {
    0xc4, 0,  0, 0, 0,   0, 0, 0, 0x5a, 0x5a, 0x5a, 0x5a, 0,   0,   0,   0,
    4,    0,  0, 0, 68,  0, 0, 0, 1,    0,    0,    0, /* inputs, 68 bytes, one */
    1,    0,  0, 0, 2,   0, 0, 0, 3,    0,    0,    0, /*   float16, ND, kind of address */
    0,    16, 0, 0, 0,   0, 0, 0,                      /*   address */
    7,    0,  0, 0, 0,   0, 0, 0,                      /*   offset */
    12,   0,  0, 0, 0,   0, 0, 0,                      /*   size */
    24,   0,  0, 0,                                    /*   a list of 24 bytes: */
    0,    0,  0, 0, 16,  0, 0, 0,                      /*     shape, 16 bytes */
    2,    0,  0, 0, 0,   0, 0, 0, 3,    0,    0,    0,    0,   0,   0,   0,
    5,    0,  0, 0, 104, 0, 0, 0, 1,    0,    0,    0, /* outputs, 104 bytes, one */
    3,    0,  0, 0, 3,   4, 0, 0, 3,    0,    0,    0, /*   int32, NC1HWC0 in 4 groups, kind of address */
    1,    0,  0, 0, 0,   0, 0, 0, 1,    0,    0,    0, /*   original index, data type, format */
    0,    0,  0, 0, 0,   0, 0, 0,                      /*   address */
    0,    0,  0, 0, 0,   0, 0, 0,                      /*   offset */
    4,    0,  0, 0, 0,   0, 0, 0,                      /*   size */
    48,   0,  0, 0,                                    /*   a list of 48 bytes: */
    0,    0,  0, 0, 8,   0, 0, 0, 1,    0,    0,    0,    0,   0,   0,   0, /* shape */
    1,    0,  0, 0, 8,   0, 0, 0, 1,    0,    0,    0,    0,   0,   0,   0, /* original shape */
    2,    0,  0, 0, 8,   0, 0, 0, 'o',  'r',  'i',  'g',  'i', 'n', 'a', 'l',
};

enum { PREFIX = 8, HEADER = sizeof VALID - PREFIX, FILE_BYTES = sizeof VALID + 12 + 4 };

/* Reads a copy of exactly `length` bytes and returns whether it has no fault. */
static bool read_exactly(const uint8_t *bytes, size_t length, unsigned *tensors) {
    uint8_t *exact = malloc(length ? length : 1);
    struct ds_dump_data message;
    struct ds_entry entry;
    CHECK(exact);
    memcpy(exact, bytes, length);
    ds_dump_data_begin(&message, exact, length);
    for (*tensors = 0; ds_dump_data_next(&message, &entry); (*tensors)++) {
        if (entry.kind < DS_ENTRY_INPUT) /* without the magic number, it is read as a DumpData message */
            continue;
        const struct ds_segment *segment = &entry.segment;
        const struct ds_span name = segment->original_op.name;
        CHECK(!message.small || segment->kind == DS_INPUT || segment->kind == DS_OUTPUT);
        CHECK(segment->shape.count <= DS_MAX_DIMS && segment->original_shape.count <= DS_MAX_DIMS);
        CHECK(!name.at || (name.at >= exact && name.length <= (size_t)(exact + length - name.at)));
    }
    bool good = !message.fault;
    CHECK(good || message.fault_position <= length);
    free(exact);
    return good;
}

static void valid_header_is_read_in_full(void) {
    struct ds_dump_data message;
    struct ds_entry entry;
    const struct ds_segment *segment = &entry.segment;
    ds_dump_data_begin(&message, VALID + PREFIX, HEADER);

    CHECK(ds_dump_data_next(&message, &entry));
    CHECK_EQUAL(entry.kind, DS_ENTRY_INPUT);
    CHECK_EQUAL(segment->data_type * 10 + segment->format, 22);
    CHECK_EQUAL(segment->address, 0x1000);
    CHECK_EQUAL(segment->offset * 100 + segment->size, 712);
    CHECK_EQUAL(segment->shape.count, 2);
    CHECK_EQUAL(segment->shape.dim[1], 3);
    CHECK(!segment->original_op.present);

    CHECK(ds_dump_data_next(&message, &entry));
    CHECK_EQUAL(entry.kind, DS_ENTRY_OUTPUT);
    CHECK_EQUAL(segment->data_type, 7);
    CHECK_EQUAL(segment->format * 10 + segment->sub_format, 34);
    CHECK_EQUAL(segment->size, 4);
    CHECK_EQUAL(segment->original_shape.count, 1);
    CHECK_EQUAL(segment->original_op.output_index, 1);
    CHECK_EQUAL(segment->original_op.format, 1);
    CHECK_EQUAL(segment->original_op.name.length, 8);
    CHECK(memcmp(segment->original_op.name.at, "original", 8) == 0);

    CHECK(!ds_dump_data_next(&message, &entry));
    CHECK(!message.fault);
}

static void the_length_of_the_file_counts_every_tensor(void) {
    struct ds_header header;

    CHECK_EQUAL(ds_header_read(VALID, sizeof VALID, &header), DS_HEADER_WHOLE);
    CHECK_EQUAL(header.total, FILE_BYTES);
    CHECK_EQUAL(header.present, FILE_BYTES);
    for (size_t length = PREFIX; length < sizeof VALID; length++) {
        CHECK_EQUAL(ds_header_read(VALID, length, &header), DS_HEADER_PARTIAL);
        CHECK_EQUAL(header.total, sizeof VALID);
    }
}

static void every_truncation_of_the_header_is_a_fault_or_ends_between_blocks(void) {
    unsigned tensors;
    for (size_t length = 4; length <= HEADER; length++) {
        bool ends_a_block = length == 8 || length == 84 || length == HEADER;

        CHECK_EQUAL(read_exactly(VALID + PREFIX, length, &tensors), ends_a_block);
    }
    CHECK_EQUAL(tensors, 2);
}

static void a_count_without_tensors_is_a_fault(void) {
    uint8_t bytes[sizeof VALID];
    unsigned tensors;
    memcpy(bytes, VALID, sizeof bytes);
    memset(bytes + PREFIX + 16, 0xff, 4);

    CHECK(!read_exactly(bytes + PREFIX, HEADER, &tensors));
    CHECK_EQUAL(tensors, 1);
}

static void no_mutation_leads_outside(void) {
    unsigned good = 0;
    for (unsigned round = 0; round < MUTATIONS; round++) {
        uint8_t bytes[sizeof VALID];
        unsigned tensors;
        struct ds_header header;
        memcpy(bytes, VALID, sizeof bytes);
        for (uint32_t hits = 1 + next_random(4); hits > 0; hits--)
            bytes[PREFIX + next_random(HEADER)] = (uint8_t)(next_random(3) ? next_random(256) : 0xff);

        bool whole = read_exactly(bytes + PREFIX, HEADER, &tensors);

        if (memcmp(bytes + PREFIX, VALID + PREFIX, 4) == 0)
            CHECK_EQUAL(ds_header_read(bytes, sizeof bytes, &header) == DS_HEADER_WHOLE, whole);
        good += whole;
    }
    CHECK(good > MUTATIONS / 100 && good < MUTATIONS - MUTATIONS / 100);
}

int main(void) {
    valid_header_is_read_in_full();
    the_length_of_the_file_counts_every_tensor();
    every_truncation_of_the_header_is_a_fault_or_ends_between_blocks();
    a_count_without_tensors_is_a_fault();
    no_mutation_leads_outside();
    return 0;
}
