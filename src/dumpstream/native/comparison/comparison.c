/* From the bytes of both sides to blocks of doubles. */
#include "dumpstream/comparison.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "../statistics/element.h"
#include "pairs.h"

static const struct ds_pair_kernels *kernels_in_use(void) {
    if (ds_kernels_in_use() == &ds_portable_kernels)
        return &ds_portable_pair_kernels;
#if defined(__x86_64__)
    return &ds_avx2_pair_kernels;
#elif defined(__aarch64__)
    return &ds_neon_pair_kernels;
#else
    return &ds_portable_pair_kernels;
#endif
}

static bool is_wide(const struct ds_side *side) {
    return side->kind == DS_I8 || side->kind == DS_U8;
}

/* Whether the products of elements are exact as doubles. */
static bool is_narrow(const struct ds_side *side) {
    enum ds_kind kind = side->kind;
    return kind == DS_F4 || kind == DS_F2 || kind == DS_BF16 || DS_KIND[kind].bits <= 16;
}

/* Whether bytes are codes of fewer bits, whose upper bits say nothing. */
static bool has_spare_bits(const struct ds_side *side) {
    return side->kind == DS_BYTE && memcmp(side->table, side->table + 128, 128 * sizeof *side->table) == 0;
}

/* Whether elements are equal if their bytes are, and only then. */
static bool is_raw(const struct ds_side *mine, const struct ds_side *golden) {
    size_t table_bytes = ds_kind_table_size(mine->kind) * sizeof *mine->table;
    return mine->kind == golden->kind && DS_KIND[mine->kind].bits >= 8 &&
           memcmp(mine->table, golden->table, table_bytes) == 0 && !has_spare_bits(mine);
}

/* The units in the last place of both types: 2^(exponent - digits), but not smaller than that of the
 * smallest normal number of either. */
static double least_power(const struct ds_side *mine, const struct ds_side *golden) {
    if (mine->is_integer || golden->is_integer) {
        const struct ds_side *floats = mine->is_integer ? golden : mine;
        return floats->is_integer ? 1 : ldexp(1, floats->exponent);
    }
    int digits = ds_comparison_digits(mine, golden);
    int unit = mine->exponent - mine->digits, other = golden->exponent - golden->digits;
    return ldexp(1, (unit > other ? unit : other) + digits);
}

/* Copies no more of the table than the kind has: small tensors take less time than a whole one. */
static void copy_side(struct ds_side *to, const struct ds_side *from) {
    memcpy(to, from, offsetof(struct ds_side, table) + ds_kind_table_size(from->kind) * sizeof *from->table);
}

void ds_comparison_init(struct ds_comparison *comparison, const struct ds_side *mine,
                        const struct ds_side *golden, bool extremes) {
    memset(&comparison->kernels, 0,
           offsetof(struct ds_comparison, x) - offsetof(struct ds_comparison, kernels));
    copy_side(&comparison->mine, mine);
    copy_side(&comparison->golden, golden);
    comparison->kernels = kernels_in_use();
    comparison->wide = mine->is_integer && golden->is_integer && (is_wide(mine) || is_wide(golden));
    comparison->raw = is_raw(mine, golden);
    comparison->rounded = !comparison->wide && (is_wide(mine) || is_wide(golden));
    comparison->narrow = is_narrow(mine) && is_narrow(golden);
    comparison->extremes = extremes;
    comparison->has_ulp = !mine->is_integer || !golden->is_integer;
    comparison->least = least_power(mine, golden);
    comparison->totals.worst = comparison->totals.first_mismatch = DS_NO_ELEMENT;
    comparison->totals.x_min = comparison->totals.y_min = INFINITY;
    comparison->totals.x_max = comparison->totals.y_max = -INFINITY;
}

static void begin_again(struct ds_comparison *comparison) {
    ds_pairs_merge(comparison);
    comparison->divergence = true;
}

void ds_comparison_again(struct ds_comparison *comparison) {
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    begin_again(comparison);
    fesetenv(&mode);
}

size_t ds_kind_elements(enum ds_kind kind, size_t length) {
    size_t bits = DS_KIND[kind].bits;
    return length / bits * 8 + length % bits * 8 / bits;
}

/* Elements as doubles */

/* The code of the element `index`, all of which have `bits` bits. */
static unsigned packed_code(const uint8_t *data, size_t index, size_t bits) {
    size_t first = index * bits, byte = first / 8, used = first % 8;
    if (bits == 1)
        return data[byte] >> (7 - used) & 1u;
    unsigned pair = data[byte];
    if (used + bits > 8)
        pair |= (unsigned)data[byte + 1] << 8;
    return pair >> used & ((1u << bits) - 1);
}

/* Writes the `count` elements behind the first `start` of `data` to `values`. */
static void stage(const struct ds_pair_kernels *kernels, const struct ds_side *side, const uint8_t *data,
                  size_t start, size_t count, double *values) {
    enum ds_kind kind = side->kind;
    if (kind < DS_SUMMED_KINDS) {
        kernels->widen[kind](data + start * ds_width(kind), count, values);
    } else if (kind == DS_BOOL) {
        for (size_t i = 0; i < count; i++)
            values[i] = data[start + i] != 0;
    } else if (kind == DS_BYTE) {
        for (size_t i = 0; i < count; i++)
            values[i] = side->table[data[start + i]];
    } else {
        for (size_t i = 0; i < count; i++)
            values[i] = side->table[packed_code(data, start + i, DS_KIND[kind].bits)];
    }
}

static __int128 exact_element(const struct ds_side *side, const uint8_t *data, size_t index, double value) {
    if (side->kind == DS_I8)
        return DS_LOAD(int64_t, data + 8 * index);
    if (side->kind == DS_U8)
        return DS_LOAD(uint64_t, data + 8 * index);
    return (int64_t)value;
}

/* Whether all of `count` integers are exact as doubles, and so are their differences. */
static bool all_exact(const double *x, size_t count) {
    size_t beyond = 0;
    for (size_t i = 0; i < count; i++)
        beyond += fabs(x[i]) >= 0x1p52;
    return beyond == 0;
}

static void subtract_doubles(struct ds_comparison *comparison, size_t count) {
    struct ds_pair_totals *totals = &comparison->totals;
    const double *x = comparison->x + comparison->filled, *y = comparison->y + comparison->filled;
    double *difference = comparison->difference + comparison->filled, largest = 0;
    size_t equal = 0;
    for (size_t i = 0; i < count; i++) {
        difference[i] = x[i] - y[i];
        largest = fabs(difference[i]) > largest ? fabs(difference[i]) : largest;
        equal += x[i] == y[i];
    }
    comparison->equal += equal;
    if (largest > (double)totals->exact_max) {
        size_t at = 0;
        while (fabs(difference[at]) != largest)
            at++;
        totals->exact_max = (unsigned __int128)largest;
        totals->exact_x = (int64_t)x[at];
        totals->exact_y = (int64_t)y[at];
        totals->worst = totals->count + comparison->filled + at;
    }
}

/* Subtracts the elements that were staged, exactly. */
static void subtract_integers(struct ds_comparison *comparison, const uint8_t *mine, const uint8_t *golden,
                              size_t start, size_t count) {
    struct ds_pair_totals *totals = &comparison->totals;
    for (size_t i = 0, at = comparison->filled; i < count; i++, at++) {
        __int128 x = exact_element(&comparison->mine, mine, start + i, comparison->x[at]);
        __int128 y = exact_element(&comparison->golden, golden, start + i, comparison->y[at]);
        unsigned __int128 error = (unsigned __int128)(x > y ? x - y : y - x);
        comparison->difference[at] = (double)(x - y);
        comparison->equal += error == 0;
        if (error > totals->exact_max) {
            totals->exact_max = error;
            totals->exact_x = x;
            totals->exact_y = y;
            totals->worst = totals->count + at;
        }
    }
}

static size_t count_equal(const struct ds_comparison *comparison, const uint8_t *mine, const uint8_t *golden,
                          size_t start, size_t count) {
    size_t bytes = DS_KIND[comparison->mine.kind].bits / 8, logarithm = (size_t)__builtin_ctzl(bytes);
    return comparison->kernels->equal[logarithm](mine + start * bytes, golden + start * bytes, count);
}

/* Whether an integer of 8 bytes is the double that it was rounded to. */
static bool is_exact(const struct ds_side *side, const uint8_t *data, size_t index, double value) {
    return !is_wide(side) || (value < 0x1p64 && (__int128)value == exact_element(side, data, index, value));
}

/* Counts the floats that are equal to integers of 8 bytes, which were rounded. */
static size_t count_exact(const struct ds_comparison *comparison, const uint8_t *mine, const uint8_t *golden,
                          size_t start, size_t count) {
    const double *x = comparison->x + comparison->filled, *y = comparison->y + comparison->filled;
    size_t equal = 0;
    for (size_t i = 0; i < count; i++)
        equal += x[i] == y[i] && signbit(x[i]) == signbit(y[i]) &&
                 is_exact(&comparison->mine, mine, start + i, x[i]) &&
                 is_exact(&comparison->golden, golden, start + i, y[i]);
    return equal;
}

/* Adds to the block, which has room for them. */
static void fill(struct ds_comparison *comparison, const uint8_t *mine, const uint8_t *golden, size_t start,
                 size_t count) {
    size_t filled = comparison->filled;
    stage(comparison->kernels, &comparison->mine, mine, start, count, comparison->x + filled);
    stage(comparison->kernels, &comparison->golden, golden, start, count, comparison->y + filled);
    if (comparison->wide && all_exact(comparison->x + filled, count) &&
        all_exact(comparison->y + filled, count))
        subtract_doubles(comparison, count);
    else if (comparison->wide)
        subtract_integers(comparison, mine, golden, start, count);
    else if (comparison->rounded)
        comparison->equal += count_exact(comparison, mine, golden, start, count);
    else if (comparison->raw)
        comparison->equal += count_equal(comparison, mine, golden, start, count);
    comparison->filled += count;
}

/* Where the element `start` lies, which may be past the end. */
static uintptr_t place_of(const struct ds_side *side, const uint8_t *data, size_t start) {
    return (uintptr_t)data + start * DS_KIND[side->kind].bits / 8;
}

static void take(struct ds_comparison *comparison, const uint8_t *mine, const uint8_t *golden, size_t count) {
    for (size_t start = 0, taken; start < count; start += taken) {
        size_t space = DS_COMPARISON_BLOCK - comparison->filled;
        taken = count - start < space ? count - start : space;
        fill(comparison, mine, golden, start, taken);
        if (comparison->filled == DS_COMPARISON_BLOCK) {
            comparison->ahead[0] = place_of(&comparison->mine, mine, start + taken);
            comparison->ahead[1] = place_of(&comparison->golden, golden, start + taken);
            ds_pairs_merge(comparison);
        }
    }
}

void ds_comparison_update(struct ds_comparison *comparison, const void *mine, const void *golden,
                          size_t count) {
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    take(comparison, mine, golden, count);
    fesetenv(&mode);
}

void ds_comparison_result(const struct ds_comparison *comparison, struct ds_comparison_summary *summary) {
    struct ds_comparison whole;
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    memcpy(&whole, comparison, sizeof whole);
    ds_pairs_summarise(&whole, summary);
    fesetenv(&mode);
}

void ds_comparison_whole(struct ds_comparison *comparison, const void *mine, const void *golden, size_t count,
                         struct ds_comparison_summary *summary) {
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    take(comparison, mine, golden, count);
    if (comparison->extremes) {
        begin_again(comparison);
        take(comparison, mine, golden, count);
    }
    ds_pairs_summarise(comparison, summary);
    fesetenv(&mode);
}
