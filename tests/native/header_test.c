/* The reader of dump headers, with untrusted bytes. Each input lies in memory of exactly its
 * length, so that the address sanitizer sees a read past its end. */
#include <string.h>

#include "check.h"
#include "dumpstream/header.h"
#include "random.h"

#define MUTATIONS 100000u

/* Two inputs, two outputs (the second without an address), a buffer, a
 * workspace, strings, an unknown field and a nested shape. */
static const uint8_t VALID[] = {
    81,   0,    0,    0,    0,    0,    0,    0, /* length of what follows */
    0x0a, 3,    '2',  '.',  '0',                 /* version */
    0x10, 0xb9, 0x60,                            /* dump_time */
    0x22, 10,   0x08, 1,    0x1a, 2,    0x0a, 0,    0x28, 100,
    0x40, 1,                                                 /* input: shape, size 100, address 1 */
    0x22, 5,    0x28, 0xc8, 0x01, 0x40, 1,                   /* input: size 200, address 1 */
    0x1a, 7,    0x08, 2,    0x30, 50,   0x48, 0x80, 0x01,    /* output: size 50, address 128 */
    0x1a, 2,    0x30, 7,                                     /* output: size 7, no address */
    0x2a, 2,    0x18, 11,                                    /* buffer: size 11 */
    0x32, 2,    'o',  'p',                                   /* op_name */
    0x3a, 3,    0x0a, 1,    'a',                             /* attr */
    0x42, 4,    0x08, 0,    0x18, 13,                        /* workspace: size 13 */
    0x4a, 1,    'd',                                         /* dfx_message */
    0xf9, 0x06, 1,    2,    3,    4,    5,    6,    7,    8, /* unknown, 64 bits */
    0xfd, 0x06, 1,    2,    3,    4,                         /* unknown, 32 bits */
    0x80, 0x08, 1,                                           /* unknown, varint */
};
#define TOTAL (sizeof VALID + 100 + 200 + 50 + 7 + 11 + 13)

static enum ds_header_state read_exactly(const uint8_t *bytes, size_t length, struct ds_header *header) {
    uint8_t *exact = malloc(length ? length : 1);
    CHECK(exact);
    memcpy(exact, bytes, length);
    enum ds_header_state state = ds_header_read(exact, length, header);
    free(exact);
    return state;
}

static void valid_header_gives_both_lengths(void) {
    struct ds_header header;

    CHECK_EQUAL(sizeof VALID - 8, VALID[0]);
    CHECK_EQUAL(read_exactly(VALID, sizeof VALID, &header), DS_HEADER_WHOLE);

    CHECK_EQUAL(header.total, TOTAL);
    CHECK_EQUAL(header.present, TOTAL - 7);
}

static void every_truncation_is_the_beginning_of_a_header(void) {
    for (size_t length = 0; length < sizeof VALID; length++) {
        struct ds_header header;

        CHECK_EQUAL(read_exactly(VALID, length, &header), DS_HEADER_PARTIAL);

        CHECK_EQUAL(header.total, length < 8 ? 0 : sizeof VALID);
    }
}

static void mutate(uint8_t *bytes, size_t *length) {
    for (uint32_t hits = 1 + next_random(4); hits > 0; hits--) {
        uint32_t at = next_random((uint32_t)*length);
        switch (next_random(4)) {
        case 0:
            bytes[at] = (uint8_t)next_random(256);
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << next_random(8));
            break;
        case 2:
            bytes[at] = 0xff;
            break;
        default:
            *length = 1 + at;
        }
    }
}

static void no_mutation_leads_outside_or_to_impossible_answers(void) {
    unsigned seen[3] = {0};
    for (unsigned round = 0; round < MUTATIONS; round++) {
        uint8_t bytes[sizeof VALID];
        size_t length = sizeof bytes;
        struct ds_header header;
        memcpy(bytes, VALID, sizeof bytes);
        mutate(bytes, &length);

        enum ds_header_state state = read_exactly(bytes, length, &header);

        CHECK((unsigned)state < 3);
        seen[state]++;
        CHECK(header.present <= header.total);
        if (state == DS_HEADER_WHOLE)
            CHECK(header.present > 8);
        if (state == DS_HEADER_PARTIAL)
            CHECK(header.total == 0 || header.total > length);
        if (state == DS_HEADER_NONE)
            CHECK_EQUAL(header.total, 0);
    }
    for (unsigned state = 0; state < 3; state++)
        CHECK(seen[state] > MUTATIONS / 100);
}

static void random_bytes_lead_nowhere(void) {
    for (unsigned round = 0; round < MUTATIONS; round++) {
        uint8_t bytes[64];
        struct ds_header header;
        size_t length = next_random(sizeof bytes);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)next_random(256);
        /* A plausible length, so that the reader looks at the rest. */
        memcpy(bytes, (uint8_t[8]){(uint8_t)next_random(80)}, length < 8 ? length : 8);

        CHECK((unsigned)read_exactly(bytes, length, &header) < 3);
    }
}

int main(void) {
    valid_header_gives_both_lengths();
    every_truncation_is_the_beginning_of_a_header();
    no_mutation_leads_outside_or_to_impossible_answers();
    random_bytes_lead_nowhere();
    return 0;
}
