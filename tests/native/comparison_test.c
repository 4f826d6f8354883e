/* Every set of kernels is compared with one pair at a time, in buffers that end where their elements end. */
#include "dumpstream/comparison.h"

#include <fenv.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "check.h"

#define MAX_COUNT 70
#define LARGE_COUNT (DS_COMPARISON_BLOCK * 3 + 5)

static const char *const SETS[] = {"portable", "auto"};

static const struct format {
    enum ds_kind kind;
    bool is_integer;
    int bits, digits, exponent;
} FORMATS[] = {
    {DS_F8, false, 64, 52, -1022}, {DS_F4, false, 32, 23, -126}, {DS_F2, false, 16, 10, -14},
    {DS_BF16, false, 16, 7, -126}, {DS_I8, true, 64, 0, 0},      {DS_U8, true, 64, 0, 0},
    {DS_I4, true, 32, 0, 0},       {DS_U4, true, 32, 0, 0},      {DS_I2, true, 16, 0, 0},
    {DS_U2, true, 16, 0, 0},       {DS_I1, true, 8, 0, 0},       {DS_U1, true, 8, 0, 0},
    {DS_BOOL, true, 8, 0, 0},      {DS_BYTE, false, 8, 3, -6},   {DS_BITS6, false, 6, 2, 0},
    {DS_BITS4, true, 4, 0, 0},     {DS_BITS2, true, 2, 0, 0},    {DS_BITS1, true, 1, 0, 0},
};

#define FORMAT_COUNT (sizeof FORMATS / sizeof *FORMATS)

static uint64_t random_bits(void) {
    static uint64_t state = 88172645463325252;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static struct ds_side side_of(const struct format *format) {
    struct ds_side side = {.kind = format->kind,
                           .is_integer = format->is_integer,
                           .digits = format->digits,
                           .exponent = format->exponent};
    for (size_t code = 0; code < ds_kind_table_size(format->kind); code++)
        side.table[code] = format->is_integer ? (double)code - 3 : ((double)code - 20) / 4;
    return side;
}

static size_t bytes_of(const struct format *format, size_t count) {
    return (count * (size_t)format->bits + 7) / 8;
}

static uint8_t *make_elements(const struct format *format, size_t count) {
    size_t length = bytes_of(format, count);
    uint8_t *data = malloc(length + (length == 0));
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)random_bits();
    return data;
}

static struct ds_comparison_summary compare(const struct format *mine, const struct format *golden,
                                            const uint8_t *x, const uint8_t *y, size_t count, bool again) {
    static struct ds_comparison comparison;
    struct ds_comparison_summary summary;
    struct ds_side sides[2] = {side_of(mine), side_of(golden)};
    ds_comparison_init(&comparison, &sides[0], &sides[1], again);
    ds_comparison_update(&comparison, x, y, count);
    if (again) {
        ds_comparison_again(&comparison);
        ds_comparison_update(&comparison, x, y, count);
    }
    ds_comparison_result(&comparison, &summary);
    return summary;
}

static bool same_double(double one, double other) {
    return memcmp(&one, &other, sizeof one) == 0 || (isnan(one) && isnan(other));
}

static void check_same(const struct ds_comparison_summary *one, const struct ds_comparison_summary *other) {
    CHECK_EQUAL(one->count, other->count);
    CHECK_EQUAL(one->finite, other->finite);
    CHECK_EQUAL(one->nan_both, other->nan_both);
    CHECK_EQUAL(one->inf_differs, other->inf_differs);
    CHECK_EQUAL(one->bit_equal, other->bit_equal);
    CHECK_EQUAL(one->beyond_1, other->beyond_1);
    CHECK_EQUAL(one->beyond_5, other->beyond_5);
    CHECK_EQUAL(one->worst, other->worst);
    CHECK(same_double(one->xx, other->xx) && same_double(one->yy, other->yy));
    CHECK(same_double(one->xy, other->xy) && same_double(one->squares, other->squares));
    CHECK(same_double(one->errors, other->errors) && same_double(one->relative, other->relative));
    CHECK(same_double(one->max_error, other->max_error) && same_double(one->max_ulp, other->max_ulp));
    CHECK(same_double(one->max_relative, other->max_relative) && same_double(one->rmse, other->rmse));
    CHECK(same_double(one->x_mean, other->x_mean) && same_double(one->x_std, other->x_std));
    CHECK(same_double(one->divergence, other->divergence) && one->exact_max == other->exact_max);
}

/* Every pair of kinds, so that no kernel reads behind the end. */
static void check_pair(const struct format *mine, const struct format *golden, size_t count) {
    uint8_t *x = make_elements(mine, count), *y = make_elements(golden, count);
    struct ds_comparison_summary found[2];
    for (size_t set = 0; set < 2; set++) {
        ds_kernels_use(SETS[set]);
        found[set] = compare(mine, golden, x, y, count, count % 2);
    }
    CHECK_EQUAL(found[0].count, count);
    check_same(&found[0], &found[1]);
    free(x);
    free(y);
}

static void every_pair_of_kinds_has_the_same_digits_with_every_set(void) {
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        for (size_t j = 0; j < FORMAT_COUNT; j++) {
            for (size_t count = 0; count <= MAX_COUNT; count += 1 + count / 8)
                check_pair(&FORMATS[i], &FORMATS[j], count);
            check_pair(&FORMATS[i], &FORMATS[j], LARGE_COUNT);
        }
    }
}

static void a_tensor_is_equal_to_itself(void) {
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        uint8_t *data = make_elements(&FORMATS[i], LARGE_COUNT);

        struct ds_comparison_summary found = compare(&FORMATS[i], &FORMATS[i], data, data, LARGE_COUNT, true);

        CHECK_EQUAL(found.bit_equal, LARGE_COUNT);
        CHECK_EQUAL(found.nan_mine + found.nan_golden + found.inf_differs, 0);
        CHECK_EQUAL(found.worst, DS_NO_ELEMENT);
        CHECK(found.squares == 0 && found.max_error == 0 && found.relative == 0 && found.divergence == 0);
        free(data);
    }
}

/* Elements of fewer than 8 bits begin with a byte. */
static void every_split_gives_the_same_digits(void) {
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        const struct format *mine = &FORMATS[i], *golden = &FORMATS[(i + 5) % FORMAT_COUNT];
        uint8_t *x = make_elements(mine, LARGE_COUNT), *y = make_elements(golden, LARGE_COUNT);
        struct ds_comparison_summary whole = compare(mine, golden, x, y, LARGE_COUNT, false), parts;
        static struct ds_comparison comparison;
        struct ds_side sides[2] = {side_of(mine), side_of(golden)};
        ds_comparison_init(&comparison, &sides[0], &sides[1], false);
        for (size_t start = 0, count; start < LARGE_COUNT; start += count) {
            count = 8 * (random_bits() % 200);
            count = count < LARGE_COUNT - start ? count : LARGE_COUNT - start;
            ds_comparison_update(&comparison, x + bytes_of(mine, start), y + bytes_of(golden, start), count);
        }
        ds_comparison_result(&comparison, &parts);
        check_same(&whole, &parts);
        free(x);
        free(y);
    }
}

static void errors_are_what_they_are_by_hand(void) {
    const float x[] = {1, 2, -3, 0, NAN, INFINITY, -INFINITY, NAN, 1},
                y[] = {1, 4, 3, 0, NAN, INFINITY, INFINITY, 0, 0};
    const struct format *floats = &FORMATS[1];

    struct ds_comparison_summary found =
        compare(floats, floats, (const uint8_t *)x, (const uint8_t *)y, sizeof x / sizeof *x, false);

    CHECK_EQUAL(found.count, 9);
    CHECK_EQUAL(found.finite, 5);
    CHECK_EQUAL(found.bit_equal, 4);
    CHECK_EQUAL(found.nan_both, 1);
    CHECK_EQUAL(found.nan_mine, 1);
    CHECK_EQUAL(found.nan_golden, 0);
    CHECK_EQUAL(found.inf_differs, 1);
    CHECK(found.errors == 9 && found.squares == 41 && found.relative == 2.5);
    CHECK(found.max_error == 6 && found.max_relative == 2 && found.max_ulp == 3 * 0x1p23);
    CHECK(found.xx == 15 && found.yy == 26 && found.xy == 0);
    CHECK_EQUAL(found.worst, 2);
    CHECK(found.worst_x == -3 && found.worst_y == 3);
    CHECK_EQUAL(found.beyond_1, 3);
}

static void integers_of_8_bytes_are_subtracted_exactly(void) {
    const int64_t x[] = {5, INT64_MIN, INT64_MAX};
    const uint64_t y[] = {5, UINT64_MAX, (uint64_t)INT64_MAX - 1};

    struct ds_comparison_summary found =
        compare(&FORMATS[4], &FORMATS[5], (const uint8_t *)x, (const uint8_t *)y, 3, false);

    CHECK(found.exact_max == (unsigned __int128)UINT64_MAX + ((uint64_t)1 << 63));
    CHECK_EQUAL(found.worst, 1);
    CHECK_EQUAL(found.bit_equal, 1);
}

/* Flushes subnormals to zero, as -ffast-math does at start-up. */
static void flush_subnormals(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1 << 24));
#endif
}

static void the_mode_of_the_thread_does_not_matter_and_stays(void) {
    const float x[] = {0x1p-149f, -0x1p-140f, 1, 0x1p-30f, 3}, y[] = {0, 0x1p-149f, 1.0000001f, 7, 0.1f};
    struct ds_comparison_summary usual =
        compare(&FORMATS[1], &FORMATS[1], (const uint8_t *)x, (const uint8_t *)y, 5, true);
    fenv_t before;
    fegetenv(&before);
    fesetround(FE_UPWARD);
    flush_subnormals();

    struct ds_comparison_summary found =
        compare(&FORMATS[1], &FORMATS[1], (const uint8_t *)x, (const uint8_t *)y, 5, true);

    CHECK_EQUAL(fegetround(), FE_UPWARD);
    fesetenv(&before);
    check_same(&usual, &found);
}

int main(void) {
    every_pair_of_kinds_has_the_same_digits_with_every_set();
    for (size_t set = 0; set < 2; set++) {
        ds_kernels_use(SETS[set]);
        a_tensor_is_equal_to_itself();
        every_split_gives_the_same_digits();
        errors_are_what_they_are_by_hand();
        integers_of_8_bytes_are_subtracted_exactly();
        the_mode_of_the_thread_does_not_matter_and_stays();
    }
    return 0;
}
