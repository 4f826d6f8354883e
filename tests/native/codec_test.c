/* Every element, pattern and effort comes back as it was, and every set of kernels makes the same bytes. */
#include "codec_data.h"

#include "check.h"

static const char *const SETS[] = {"portable", "auto"};
static const size_t LENGTHS[] = {0,    1,    7,    64,    513,   1023,  1024,  1026,
                                 2050, 4096, 8192, 16383, 16390, 40000, 300001};

#define LENGTH_COUNT (sizeof LENGTHS / sizeof *LENGTHS)

/* What an encoder made of some bytes; the memory ends where it ends. */
struct encoded {
    uint8_t *bytes;
    size_t length;
};

/* Made when they are needed first, because they are large. */
static struct ds_encoder *encoders[DS_KEEP + 1];
static struct ds_decoder *decoder;

static void forget_coders(void) {
    for (enum ds_effort effort = DS_FAST; effort <= DS_KEEP; effort++) {
        ds_encoder_free(encoders[effort]);
        encoders[effort] = NULL;
    }
    ds_decoder_free(decoder);
    decoder = NULL;
}

static struct encoded encode(enum ds_effort effort, const uint8_t *bytes, size_t length, uint64_t position,
                             const struct ds_run *runs, size_t count) {
    if (!encoders[effort])
        encoders[effort] = ds_encoder_new(effort, 1);
    uint8_t *room = malloc(ds_encoded_bound(length));
    struct encoded encoded = {.length =
                                  ds_encode(encoders[effort], bytes, length, position, runs, count, room)};
    encoded.bytes = malloc(encoded.length);
    memcpy(encoded.bytes, room, encoded.length);
    free(room);
    return encoded;
}

static void check_decodes(const struct encoded *encoded, const uint8_t *bytes, size_t length) {
    if (!decoder)
        decoder = ds_decoder_new();
    uint8_t *out = malloc(length + !length);
    struct ds_decoded done = ds_decode(decoder, encoded->bytes, encoded->length, out, length);
    CHECK(!done.fault);
    CHECK_EQUAL(done.taken, encoded->length);
    CHECK_EQUAL(done.made, length);
    CHECK(memcmp(out, bytes, length) == 0);
    free(out);
}

/* Returns a checksum of what becomes of the bytes, which is the same whichever kernels are used. */
static uint32_t check_comes_back(enum ds_effort effort, const uint8_t *bytes, size_t length,
                                 uint64_t position, const struct ds_run *runs, size_t count) {
    struct encoded encoded[2];
    for (int set = 0; set < 2; set++) {
        CHECK(ds_codec_use(SETS[set]));
        encoded[set] = encode(effort, bytes, length, position, runs, count);
    }
    CHECK_EQUAL(encoded[0].length, encoded[1].length);
    CHECK(memcmp(encoded[0].bytes, encoded[1].bytes, encoded[0].length) == 0);
    CHECK(encoded[0].length <= DS_ENCODED_MOST(length));
    for (int set = 0; set < 2; set++) {
        ds_codec_use(SETS[set]);
        check_decodes(&encoded[0], bytes, length);
    }
    uint32_t crc = ds_crc32(encoded[0].bytes, encoded[0].length);
    free(encoded[0].bytes);
    free(encoded[1].bytes);
    return crc;
}

/* Without libzstd the bytes do not depend on its version: this is what every machine makes. */
#define EXPECTED 0xe781a188u

static void test_every_element_comes_back(bool with_zstd) {
    uint32_t all = 0;
    random_state = 1;
    forget_coders();
    ds_zstd_hide(!with_zstd);
    for (enum ds_element element = 0; element < DS_ELEMENTS; element++)
        for (enum pattern pattern = 0; pattern < PATTERNS; pattern++)
            for (size_t i = 0; i < LENGTH_COUNT; i++) {
                struct ds_run run = {.end = LENGTHS[i], .element = element};
                uint8_t *bytes = malloc(LENGTHS[i] + !LENGTHS[i]);
                make_elements(element, pattern, bytes, LENGTHS[i]);
                for (enum ds_effort effort = DS_FAST; effort <= DS_KEEP; effort++)
                    all = all * 31 + check_comes_back(effort, bytes, LENGTHS[i], 0, &run, 1);
                free(bytes);
            }
    forget_coders();
    ds_zstd_hide(false);
    if (!with_zstd)
        CHECK_EQUAL(all, EXPECTED);
}

/* A file with a header, tensors and what is no tensor, cut into chunks anywhere. */
static void test_any_cut_comes_back(void) {
    const struct ds_run runs[] = {
        {.end = 317, .element = DS_BYTES},   {.end = 20317, .element = DS_BFLOAT},
        {.end = 20319, .element = DS_HALF},  {.end = 40323, .element = DS_SINGLE},
        {.end = 40324, .element = DS_BYTES}, {.end = 70324, .element = DS_INTEGER_8}};
    const size_t count = sizeof runs / sizeof *runs, length = 80000;
    uint8_t *bytes = malloc(length);
    size_t start = 0;
    for (size_t i = 0; i < count; start = runs[i++].end)
        make_elements(runs[i].element, runs[i].element == DS_INTEGER_8 ? IDS : BELL, bytes + start,
                      runs[i].end - start);
    make_elements(DS_BYTES, NOISE, bytes + start, length - start);
    for (int round = 0; round < 300; round++) {
        size_t at = next_random((uint32_t)length), some = next_random((uint32_t)(length - at) + 1);
        uint8_t *chunk = malloc(some + !some);
        memcpy(chunk, bytes + at, some);
        check_comes_back(round % 4, chunk, some, at, runs, count);
        free(chunk);
    }
    free(bytes);
}

/* The headers of their blocks must not make them larger. */
static void test_many_small_tensors_do_not_grow(void) {
    enum { TENSORS = 1500, SIZE = 1027 };
    struct ds_run runs[TENSORS];
    uint8_t *bytes = malloc(TENSORS * SIZE);
    make_elements(DS_BYTES, NOISE, bytes, TENSORS * SIZE);
    for (unsigned i = 0; i < TENSORS; i++)
        runs[i] = (struct ds_run){.end = (i + 1) * SIZE, .element = DS_BFLOAT};
    for (enum ds_effort effort = DS_FAST; effort <= DS_KEEP; effort++)
        check_comes_back(effort, bytes, TENSORS * SIZE, 0, runs, TENSORS);
    free(bytes);
}

/* Runs that cannot be, as a header that lies gives them, do no harm. */
static void test_runs_are_only_a_hint(void) {
    const struct ds_run runs[] = {{.end = 5000, .element = DS_BFLOAT},
                                  {.end = 3000, .element = DS_SINGLE},
                                  {.end = 9000, .element = 99},
                                  {.end = UINT64_MAX, .element = DS_DOUBLE}};
    uint8_t bytes[20000];
    make_elements(DS_HALF, WIDE, bytes, sizeof bytes);
    check_comes_back(DS_FAST, bytes, sizeof bytes, 0, runs, 4);
    check_comes_back(DS_SMALL, bytes, sizeof bytes, UINT64_MAX - 30000, runs, 4);
    check_comes_back(DS_AUTO, bytes, sizeof bytes, 1, NULL, 0);
}

static void test_tensors_become_smaller(void) {
    const struct {
        enum ds_element element;
        enum pattern pattern;
        enum ds_effort effort;
        double ratio;
    } cases[] = {
        {DS_BFLOAT, BELL, DS_FAST, 1.40},   {DS_SINGLE, BELL, DS_FAST, 1.16},
        {DS_HALF, RELU, DS_FAST, 1.80},     {DS_BFLOAT, WIDE, DS_FAST, 1.05},
        {DS_BFLOAT, RELU, DS_FAST, 2.3},    {DS_BFLOAT, BELL, DS_SMALL, 1.47},
        {DS_BFLOAT, TINY, DS_FAST, 1.5},    {DS_HALF, RELU, DS_SMALL, 1.85},
        {DS_SINGLE, BELL, DS_SMALL, 1.18},  {DS_SINGLE, ZEROS, DS_FAST, 100},
        {DS_SINGLE, ROWS, DS_FAST, 5},      {DS_INTEGER_8, IDS, DS_AUTO, 3.5},
        {DS_INTEGER_4, COUNT, DS_AUTO, 50},
    };
    const size_t length = 1 << 20;
    uint8_t *bytes = malloc(length);
    for (size_t i = 0; ds_zstd_found() && i < sizeof cases / sizeof *cases; i++) {
        struct ds_run run = {.end = length, .element = cases[i].element};
        make_elements(cases[i].element, cases[i].pattern, bytes, length);
        struct encoded encoded = encode(cases[i].effort, bytes, length, 0, &run, 1);
        if (!((double)length / (double)encoded.length >= cases[i].ratio))
            fprintf(stderr, "case %zu: ratio %.3f\n", i, (double)length / (double)encoded.length);
        CHECK((double)length / (double)encoded.length >= cases[i].ratio);
        free(encoded.bytes);
    }
    free(bytes);
}

static void test_blocks_are_decoded_as_they_come(void) {
    uint8_t bytes[3000], out[6000];
    struct ds_run run = {.end = sizeof bytes, .element = DS_BFLOAT};
    make_elements(DS_BFLOAT, BELL, bytes, sizeof bytes);
    struct encoded one = encode(DS_FAST, bytes, sizeof bytes, 0, &run, 1);
    uint8_t *two = malloc(2 * one.length);
    memcpy(two, one.bytes, one.length);
    memcpy(two + one.length, one.bytes, one.length);
    struct ds_decoded done = ds_decode(decoder, two, 19, out, sizeof out);
    CHECK(!done.fault && !done.taken && !done.made);
    CHECK_EQUAL(done.need, DS_BLOCK_HEADER);
    done = ds_decode(decoder, two, one.length - 1, out, sizeof out);
    CHECK(!done.fault && !done.taken);
    CHECK_EQUAL(done.need, one.length);
    done = ds_decode(decoder, two, 2 * one.length, out, sizeof out - 1);
    CHECK(!done.fault);
    CHECK_EQUAL(done.taken, one.length);
    CHECK_EQUAL(done.made, sizeof bytes);
    CHECK_EQUAL(done.need, 0);
    done = ds_decode(decoder, two, 2 * one.length, out, sizeof out);
    CHECK_EQUAL(done.made, 2 * sizeof bytes);
    CHECK(memcmp(out + sizeof bytes, bytes, sizeof bytes) == 0);
    two[one.length - 1] ^= 1;
    done = ds_decode(decoder, two, 2 * one.length, out, sizeof out);
    CHECK(done.fault && !done.taken);

    free(two);
    free(one.bytes);
}

/* In blocks of all bytes there would be fewer headers, but it would take all of the time again. */
static void test_floats_that_do_not_become_fewer_are_encoded_once(void) {
    const size_t length = 2u << 20;
    struct ds_run run = {.end = length, .element = DS_BFLOAT};
    uint8_t *bytes = malloc(length);
    make_elements(DS_BFLOAT, NOISE, bytes, length);
    struct encoded encoded = encode(DS_AUTO, bytes, length, 0, &run, 1);

    CHECK_EQUAL(encoded.length, length + 8 * DS_BLOCK_HEADER);

    free(encoded.bytes);
    free(bytes);
}

static void test_a_long_row_is_stored_once_for_a_block(void) {
    const size_t length = 2u << 20, row = 30000;
    for (enum ds_element element = DS_HALF; element <= DS_DOUBLE; element++) {
        struct ds_run run = {.end = length, .element = element};
        uint8_t *memory = malloc(length + 1), *bytes = memory + 1; /* a header may have any length */
        make_elements(element, BELL, bytes, row);
        for (size_t i = row; i < length; i++)
            bytes[i] = bytes[i - row];
        struct encoded encoded = encode(DS_FAST, bytes, length, 0, &run, 1);

        CHECK_EQUAL(encoded.length, 2 * (DS_BLOCK_HEADER + row));
        check_decodes(&encoded, bytes, length);

        bytes[length - 1] ^= 1;
        free(encoded.bytes);
        encoded = encode(DS_FAST, bytes, length, 0, &run, 1);
        check_decodes(&encoded, bytes, length);

        free(encoded.bytes);
        free(memory);
    }
}

static void test_checksum_is_that_of_zlib(void) {
    for (int set = 0; set < 2; set++) {
        ds_codec_use(SETS[set]);
        CHECK_EQUAL(ds_crc32((const uint8_t *)"123456789", 9), 0xcbf43926u);
        CHECK_EQUAL(ds_crc32(NULL, 0), 0);
    }
    for (size_t length = 0; length < 400; length++) {
        uint8_t *bytes = malloc(length + 3);
        make_elements(DS_BYTES, NOISE, bytes, length + 3);
        ds_codec_use("portable");
        uint32_t crc = ds_crc32(bytes + length % 3, length);
        ds_codec_use("auto");
        CHECK_EQUAL(ds_crc32(bytes + length % 3, length), crc);
        if (ds_codec_use("avx2")) /* also where there is something faster */
            CHECK_EQUAL(ds_crc32(bytes + length % 3, length), crc);
        free(bytes);
    }
}

static void test_without_libzstd_such_blocks_are_refused(void) {
    uint8_t bytes[100000], *out = malloc(sizeof bytes);
    struct ds_run run = {.end = sizeof bytes, .element = DS_INTEGER_4};
    make_elements(DS_INTEGER_4, COUNT, bytes, sizeof bytes);
    struct encoded encoded = encode(DS_AUTO, bytes, sizeof bytes, 0, &run, 1);
    CHECK(!ds_zstd_found() || encoded.length < sizeof bytes / 2);
    forget_coders();
    ds_zstd_hide(true);
    decoder = ds_decoder_new();
    CHECK(!ds_zstd_found());
    CHECK(encoded.length > sizeof bytes / 2 ||
          ds_decode(decoder, encoded.bytes, encoded.length, out, sizeof bytes).fault);
    ds_zstd_hide(false);
    free(encoded.bytes);
    free(out);
}

int main(void) {
    test_floats_that_do_not_become_fewer_are_encoded_once();
    test_a_long_row_is_stored_once_for_a_block();
    test_checksum_is_that_of_zlib();
    test_every_element_comes_back(false);
    test_every_element_comes_back(true);
    test_any_cut_comes_back();
    test_many_small_tensors_do_not_grow();
    test_runs_are_only_a_hint();
    test_tensors_become_smaller();
    test_blocks_are_decoded_as_they_come();
    test_without_libzstd_such_blocks_are_refused();
    forget_coders();
    return 0;
}
