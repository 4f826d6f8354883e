/* A decoder takes any bytes. It decodes blocks that were damaged in every way, in memory that ends where
 * they end, and blocks whose headers lie. An argument is where random numbers begin. */
#include "codec_data.h"

#include "check.h"

#define ROUNDS 60000
#define MOST_BYTES 24000

static size_t make_blocks(struct ds_encoder *const encoders[4], uint8_t *out) {
    uint8_t bytes[MOST_BYTES];
    enum ds_element element = next_random(DS_ELEMENTS);
    size_t length = 600 + next_random(MOST_BYTES - 600);
    struct ds_run run = {.end = length, .element = element};
    make_elements(element, next_random(PATTERNS), bytes, length);
    return ds_encode(encoders[next_random(4)], bytes, length, 0, &run, 1, out);
}

static void store(uint8_t *at, uint32_t number) {
    memcpy(at, &number, sizeof number);
}

static void damage(uint8_t *bytes, size_t length) {
    static const uint32_t numbers[] = {0, 1, 2, 255, 256, 4096, 65535, 1 << 20, (1 << 20) + 1, UINT32_MAX};
    for (unsigned times = 1 + next_random(4); times > 0; times--) {
        size_t at =
            next_random(2) ? next_random((uint32_t)length) : next_random(length < 60 ? (uint32_t)length : 60);
        switch (next_random(4)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << next_random(8));
            break;
        case 1:
            bytes[at] = (uint8_t)next_random(256);
            break;
        case 2:
            if (at + 4 <= length)
                store(bytes + at, numbers[next_random(sizeof numbers / sizeof *numbers)]);
            break;
        default: /* kind, element and flags of another block */
            if (length < 7)
                break;
            bytes[4] = (uint8_t)next_random(5);
            bytes[5] = (uint8_t)next_random(9);
            bytes[6] = (uint8_t)next_random(9);
        }
    }
}

static uint32_t load(const uint8_t *bytes) {
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return number;
}

/* Makes the header true to what is there, so that only the payload is wrong: it is shorter than the original
 * bytes, or a little longer. */
static void make_fit(uint8_t *bytes, size_t length) {
    if (length < DS_BLOCK_HEADER)
        return;
    uint32_t raw = load(bytes + 8), stored = (uint32_t)(length - DS_BLOCK_HEADER);
    store(bytes + 12, stored);
    if (raw <= DS_BLOCK_MOST && raw >= stored)
        return;
    uint32_t longer = stored + stored % 8, shorter = stored < 64 ? 0 : (stored - 64) / 9 * 8;
    store(bytes + 8, next_random(2) ? longer : shorter + next_random(stored - shorter + 1));
}

/* Returns the room for the decoded bytes: enough, what the first block says it takes, or any. */
static size_t choose_room(const uint8_t *bytes, size_t length) {
    switch (next_random(4)) {
    case 0:
        return next_random(2 * MOST_BYTES);
    case 1:
        return length < DS_BLOCK_HEADER || load(bytes + 8) > DS_BLOCK_MOST ? 0 : load(bytes + 8);
    default:
        return 2 * MOST_BYTES;
    }
}

static void test_damaged_blocks_are_refused_or_decoded(void) {
    struct ds_encoder *encoders[4];
    struct ds_decoder *decoder = ds_decoder_new();
    uint8_t *made = malloc(ds_encoded_bound(MOST_BYTES));
    size_t length = 0;
    unsigned refused = 0;
    for (int effort = 0; effort < 4; effort++)
        encoders[effort] = ds_encoder_new(effort, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round % 20 == 0)
            length = make_blocks(encoders, made);
        ds_codec_use(round % 3 ? "auto" : "portable");
        size_t kept = next_random(4) ? length : next_random((uint32_t)length) + 1;
        uint8_t *bytes = malloc(kept);
        memcpy(bytes, made, kept);
        damage(bytes, kept);
        if (next_random(2))
            make_fit(bytes, kept);
        size_t room = choose_room(bytes, kept);
        uint8_t *out = malloc(room + !room);
        struct ds_decoded done = ds_decode(decoder, bytes, kept, out, room);
        CHECK(done.taken <= kept && done.made <= room);
        CHECK(done.need <= DS_PAYLOAD_MOST(DS_BLOCK_MOST) + DS_BLOCK_HEADER || done.fault);
        refused += done.fault != NULL;
        free(out);
        free(bytes);
    }
    CHECK(refused > ROUNDS / 2);
    for (int effort = 0; effort < 4; effort++)
        ds_encoder_free(encoders[effort]);
    ds_decoder_free(decoder);
    free(made);
}

static void test_a_block_cannot_claim_more_than_its_limit(void) {
    uint8_t bytes[DS_BLOCK_HEADER + 64] = {0x44, 0x53, 0x54, 0xb1, 1};
    uint8_t *out = malloc(4 * (size_t)DS_BLOCK_MOST);
    struct ds_decoder *decoder = ds_decoder_new();
    store(bytes + 8, DS_BLOCK_MOST + 1);
    store(bytes + 12, 64);
    CHECK(ds_decode(decoder, bytes, sizeof bytes, out, 4 * (size_t)DS_BLOCK_MOST).fault);
    store(bytes + 8, 0);
    store(bytes + 12, 65);
    CHECK(ds_decode(decoder, bytes, sizeof bytes, out, 4 * (size_t)DS_BLOCK_MOST).fault);
    ds_decoder_free(decoder);
    free(out);
}

static void test_what_is_repeated_must_fit(void) {
    uint8_t bytes[DS_BLOCK_HEADER + 73] = {0x44, 0x53, 0x54, 0xb1, 4};
    uint8_t *out = malloc(8);
    struct ds_decoder *decoder = ds_decoder_new();
    store(bytes + 8, 8);
    store(bytes + 12, 73);
    store(bytes + 16, ds_crc32(bytes + DS_BLOCK_HEADER, 8));
    CHECK(ds_decode(decoder, bytes, sizeof bytes, out, 8).fault);
    ds_decoder_free(decoder);
    free(out);
}

/* The layout of a file comes from its header, which is as untrusted. */
static void test_any_header_has_a_layout(void) {
    struct ds_run runs[8];
    for (unsigned round = 0; round < 20000; round++) {
        uint8_t bytes[200];
        size_t length = next_random(sizeof bytes);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)(next_random(3) ? next_random(256) : 8 * next_random(10) + next_random(3));
        if (length >= 8) {
            memset(bytes, 0, 8);
            bytes[0] = (uint8_t)(length - 8 + next_random(3));
        }
        uint8_t *exact = malloc(length + !length);
        memcpy(exact, bytes, length);
        size_t count = ds_layout_read(exact, length, runs, 8);
        for (size_t i = 1; i < count && i < 8; i++)
            CHECK(runs[i].end > runs[i - 1].end);
        free(exact);
    }
}

int main(int argc, char **argv) {
    if (argc > 1)
        random_state += strtoull(argv[1], NULL, 10);
    test_what_is_repeated_must_fit();
    test_damaged_blocks_are_refused_or_decoded();
    test_a_block_cannot_claim_more_than_its_limit();
    test_any_header_has_a_layout();
    return 0;
}
