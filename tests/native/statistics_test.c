/* Every set of kernels is compared with sums over one element at a time, in buffers that end
 * where their elements end. */
#include "dumpstream/statistics.h"

#include <fenv.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "check.h"

#define MAX_COUNT 200
#define LARGE_BYTES (DS_STATISTICS_BLOCK * 5 + 24)

static const char *const SETS[] = {"portable", "auto"};

static const struct format {
    enum ds_kind kind;
    int bytes, exponent_bits, mantissa_bits; /* no exponent: an integer */
    bool is_signed;
} FORMATS[] = {
    {DS_F8, 8, 11, 52, true}, {DS_F4, 4, 8, 23, true}, {DS_F2, 2, 5, 10, true}, {DS_BF16, 2, 8, 7, true},
    {DS_I8, 8, 0, 0, true},   {DS_U8, 8, 0, 0, false}, {DS_I4, 4, 0, 0, true},  {DS_U4, 4, 0, 0, false},
    {DS_I2, 2, 0, 0, true},   {DS_U2, 2, 0, 0, false}, {DS_I1, 1, 0, 0, true},  {DS_U1, 1, 0, 0, false},
};

#define FORMAT_COUNT (sizeof FORMATS / sizeof *FORMATS)

struct expected {
    uint64_t nan, pos_inf, neg_inf, zero, negative, subnormal, finite;
    long double sum, magnitudes, squares;
    double max, min;
    __int128 exact_sum, exact_max, exact_min;
};

static uint64_t random_bits(void) {
    static uint64_t state = 88172645463325252;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Elements of every class. Rare classes come often. */
static uint64_t make_code(const struct format *format) {
    int bits = format->bytes * 8;
    uint64_t code = random_bits() >> (64 - bits), top = (uint64_t)1 << (bits - 1);
    uint64_t lowest_normal = (uint64_t)1 << format->mantissa_bits;
    uint64_t infinity = top - lowest_normal;
    const uint64_t special[] = {0, 1, lowest_normal - 1, lowest_normal, infinity - 1, infinity, infinity + 1};
    switch (random_bits() % 8) {
    case 0:
        return special[random_bits() % 7];
    case 1:
        return special[random_bits() % 7] | top;
    default:
        /* Doubles with squares that do not overflow. */
        return format->kind == DS_F8 ? (code & 0x83ffffffffffffff) | 0x3c00000000000000 : code;
    }
}

static double decode_float(const struct format *format, uint64_t code) {
    uint64_t mantissa = code & (((uint64_t)1 << format->mantissa_bits) - 1);
    int field = (int)(code >> format->mantissa_bits & ((1u << format->exponent_bits) - 1));
    int bias = (1 << (format->exponent_bits - 1)) - 1;
    double fraction = ldexp((double)mantissa, -format->mantissa_bits);
    double value = field == (1 << format->exponent_bits) - 1 ? (mantissa ? NAN : INFINITY)
                   : field                                   ? ldexp(1 + fraction, field - bias)
                                                             : ldexp(fraction, 1 - bias);
    return code >> (format->bytes * 8 - 1) & 1 ? -value : value;
}

static __int128 decode_integer(const struct format *format, uint64_t code) {
    int bits = format->bytes * 8;
    bool negative = format->is_signed && code >> (bits - 1) & 1;
    return negative ? (__int128)code - ((__int128)1 << bits) : (__int128)code;
}

static void expect_finite(struct expected *expected, double value, double min_normal) {
    bool first = expected->finite++ == 0;
    expected->zero += value == 0;
    expected->subnormal += value != 0 && fabs(value) < min_normal;
    expected->sum += value;
    expected->magnitudes += fabs(value);
    expected->squares += (long double)value * value;
    expected->max = first || value > expected->max ? value : expected->max;
    expected->min = first || value < expected->min ? value : expected->min;
}

static void expect(const struct format *format, struct expected *expected, uint64_t code) {
    __int128 exact = 0;
    double value, min_normal = 0;
    if (format->exponent_bits) {
        value = decode_float(format, code);
        min_normal = ldexp(1, 2 - (1 << (format->exponent_bits - 1)));
    } else {
        bool first = expected->finite == 0;
        exact = decode_integer(format, code);
        value = (double)exact;
        expected->exact_sum += exact;
        expected->exact_max = first || exact > expected->exact_max ? exact : expected->exact_max;
        expected->exact_min = first || exact < expected->exact_min ? exact : expected->exact_min;
    }
    expected->negative += value < 0;
    if (isnan(value))
        expected->nan++;
    else if (isinf(value))
        *(value > 0 ? &expected->pos_inf : &expected->neg_inf) += 1;
    else
        expect_finite(expected, value, min_normal);
}

static struct ds_summary summarise(enum ds_kind kind, const double *table, uint64_t elements,
                                   const uint8_t *data, size_t length) {
    struct ds_statistics statistics;
    struct ds_summary summary;
    ds_statistics_init(&statistics, kind, table, 0, elements, false);
    ds_statistics_update(&statistics, data, length);
    ds_statistics_result(&statistics, &summary, NULL);
    return summary;
}

static bool is_near(double found, long double expected, long double allowed) {
    return fabsl(found - expected) <= allowed;
}

static void check_sums(const struct ds_summary *found, const struct expected *expected) {
    if (found->finite == 0)
        return;
    if (found->is_integer) {
        CHECK(found->exact_sum == expected->exact_sum);
        CHECK(found->exact_max == expected->exact_max);
        CHECK(found->exact_min == expected->exact_min);
    } else {
        CHECK(found->finite_max == expected->max);
        CHECK(found->finite_min == expected->min);
    }
    CHECK(found->finite == found->count || isnan(found->std));
    if (expected->magnitudes > 1e308L)
        return;
    CHECK(is_near(found->finite_mean, expected->sum / expected->finite,
                  1e-12L * expected->magnitudes / expected->finite));
    if (found->finite < found->count)
        return;
    long double mean = expected->sum / found->count, square = expected->squares / found->count;
    CHECK(is_near(found->sum, expected->sum, 1e-12L * expected->magnitudes));
    if (expected->squares < 1e-300L || expected->squares > 1e300L)
        return;
    CHECK(is_near(found->l2norm, sqrtl(expected->squares), 1e-12L * sqrtl(expected->squares)));
    CHECK(is_near(found->std * found->std, square - mean * mean, 1e-10L * square));
}

static void check_summary(const struct ds_summary *found, uint64_t count, const struct expected *expected) {
    CHECK_EQUAL(found->count, count);
    CHECK_EQUAL(found->finite, expected->finite);
    CHECK_EQUAL(found->nan, expected->nan);
    CHECK_EQUAL(found->pos_inf, expected->pos_inf);
    CHECK_EQUAL(found->neg_inf, expected->neg_inf);
    CHECK_EQUAL(found->zero, expected->zero);
    CHECK_EQUAL(found->negative, expected->negative);
    CHECK_EQUAL(found->subnormal, expected->subnormal);
    check_sums(found, expected);
}

/* Without `wild` elements, all are finite and no sum of squares overflows. */
static bool is_wild(const struct format *format, uint64_t code) {
    return format->exponent_bits && !(fabs(decode_float(format, code)) < 0x1p300);
}

static void check_format(const struct format *format, size_t count, size_t offset, bool wild) {
    size_t width = (size_t)format->bytes;
    uint8_t *buffer = malloc(offset + count * width + (offset + count == 0));
    uint8_t *data = buffer + offset;
    struct expected expected = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t code = make_code(format);
        while (!wild && is_wild(format, code))
            code = make_code(format);
        memcpy(data + i * width, &code, width);
        expect(format, &expected, code);
    }

    struct ds_summary found = summarise(format->kind, NULL, DS_UNLIMITED, data, count * width);

    check_summary(&found, count, &expected);
    free(buffer);
}

static void every_length_and_alignment_is_summed_up(void) {
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        for (size_t count = 0; count <= MAX_COUNT; count++)
            for (int wild = 0; wild < 2; wild++)
                check_format(&FORMATS[i], count, count % 16, wild);
}

static void blocks_are_merged(void) {
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        for (int wild = 0; wild < 2; wild++)
            check_format(&FORMATS[i], LARGE_BYTES / (size_t)FORMATS[i].bytes, 3, wild);
}

/* One element in 64 is larger by one. */
static void a_small_spread_around_a_large_mean_is_exact(void) {
    static const struct {
        enum ds_kind kind;
        size_t width;
        uint64_t usual, larger;
    } codes[] = {
        {DS_F8, 8, 0x41cdcd6500000000, 0x41cdcd6500800000}, /* 1e9 */
        {DS_F4, 4, 0x49742400, 0x49742410},                 /* 1e6 */
        {DS_F2, 2, 0x6401, 0x6402},                         /* 1025 */
        {DS_BF16, 2, 0x4348, 0x4349},                       /* 200 */
        {DS_I8, 8, 1000000007, 1000000008},
        {DS_U8, 8, 1000000007, 1000000008},
        {DS_I4, 4, 1000000007, 1000000008},
        {DS_U4, 4, 3000000007, 3000000008},
        {DS_I2, 2, 30001, 30002},
        {DS_U2, 2, 60001, 60002},
        {DS_I1, 1, 101, 102},
        {DS_U1, 1, 201, 202},
    };
    static uint8_t data[DS_STATISTICS_BLOCK * 3];
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        size_t count = sizeof data / codes[i].width;
        for (size_t j = 0; j < count; j++)
            memcpy(data + j * codes[i].width, j % 64 ? &codes[i].usual : &codes[i].larger, codes[i].width);

        struct ds_summary found = summarise(codes[i].kind, NULL, DS_UNLIMITED, data, sizeof data);

        CHECK(is_near(found.std, sqrtl(63.0L) / 64, 1e-9L));
    }
}

static void every_split_gives_the_same_bytes(void) {
    static uint8_t data[LARGE_BYTES];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(random_bits() & 0xbf);
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        struct ds_summary whole = summarise(FORMATS[i].kind, NULL, DS_UNLIMITED, data, sizeof data);
        struct ds_statistics statistics;
        struct ds_summary summary;
        ds_statistics_init(&statistics, FORMATS[i].kind, NULL, 0, DS_UNLIMITED, false);

        for (size_t start = 0, length; start < sizeof data; start += length) {
            length = random_bits() % (2 * DS_STATISTICS_BLOCK);
            length = length < sizeof data - start ? length : sizeof data - start;
            ds_statistics_update(&statistics, data + start, length);
        }
        ds_statistics_result(&statistics, &summary, NULL);

        CHECK(summary.count == whole.count && summary.zero == whole.zero);
        CHECK(memcmp(&summary.sum, &whole.sum, sizeof summary.sum) == 0);
        CHECK(memcmp(&summary.std, &whole.std, sizeof summary.std) == 0);
        CHECK(memcmp(&summary.l2norm, &whole.l2norm, sizeof summary.l2norm) == 0);
    }
}

static bool same_double(double one, double other) {
    return memcmp(&one, &other, sizeof one) == 0 || (isnan(one) && isnan(other));
}

static void every_set_gives_the_same_digits(void) {
    static uint8_t data[LARGE_BYTES];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(random_bits() & 0xbf);
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        for (size_t count = 1; count * (size_t)FORMATS[i].bytes <= sizeof data; count += 1 + count / 3) {
            struct ds_summary found[2];
            for (size_t set = 0; set < 2; set++) {
                ds_kernels_use(SETS[set]);
                found[set] =
                    summarise(FORMATS[i].kind, NULL, DS_UNLIMITED, data, count * (size_t)FORMATS[i].bytes);
            }
            CHECK(same_double(found[0].sum, found[1].sum));
            CHECK(same_double(found[0].finite_mean, found[1].finite_mean));
            CHECK(same_double(found[0].l2norm, found[1].l2norm));
            CHECK(same_double(found[0].std, found[1].std));
        }
    }
}

static void packed_elements_end_inside_a_byte(void) {
    static const struct {
        enum ds_kind kind;
        size_t bits;
    } packed[] = {{DS_BITS6, 6}, {DS_BITS4, 4}, {DS_BITS2, 2}, {DS_BITS1, 1}};
    double table[64];
    for (int code = 0; code < 64; code++)
        table[code] = code;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        for (size_t count = 0; count <= MAX_COUNT; count++) {
            size_t length = (count * packed[i].bits + 7) / 8;
            uint8_t *data = malloc(length + (length == 0));
            memset(data, 0xff, length);

            struct ds_summary found = summarise(packed[i].kind, table, count, data, length);

            CHECK_EQUAL(found.count, count);
            CHECK(found.sum == (double)(count * (((size_t)1 << packed[i].bits) - 1)));
            CHECK_EQUAL(found.saturated, count);
            free(data);
        }
    }
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
    const float data[] = {0x1p-149f, -0x1p-140f, 1, 0x1p-30f, 3};
    struct ds_summary usual = summarise(DS_F4, NULL, DS_UNLIMITED, (const uint8_t *)data, sizeof data);
    fenv_t before;
    fegetenv(&before);
    fesetround(FE_UPWARD);
    flush_subnormals();

    struct ds_summary found = summarise(DS_F4, NULL, DS_UNLIMITED, (const uint8_t *)data, sizeof data);

    CHECK_EQUAL(fegetround(), FE_UPWARD);
    fesetenv(&before);
    CHECK_EQUAL(usual.subnormal, 2);
    CHECK_EQUAL(found.subnormal, 2);
    CHECK_EQUAL(found.zero, 0);
    CHECK_EQUAL(found.negative, 1);
    CHECK(memcmp(&found.sum, &usual.sum, sizeof found.sum) == 0);
    CHECK(memcmp(&found.std, &usual.std, sizeof found.std) == 0);
}

static void kernels_that_are_not_here_are_refused(void) {
    CHECK(ds_kernels_use("sse9") == NULL);
}

int main(void) {
    for (size_t i = 0; i < sizeof SETS / sizeof *SETS; i++) {
        CHECK(ds_kernels_use(SETS[i]) != NULL);
        every_length_and_alignment_is_summed_up();
        blocks_are_merged();
        a_small_spread_around_a_large_mean_is_exact();
        every_split_gives_the_same_bytes();
        packed_elements_end_inside_a_byte();
        the_mode_of_the_thread_does_not_matter_and_stays();
        kernels_that_are_not_here_are_refused();
    }
    every_set_gives_the_same_digits();
    return 0;
}
