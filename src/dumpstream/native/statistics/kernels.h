/* What the statistics and their kernels share. */
#pragma once

#include "dumpstream/statistics.h"

/* The result of a kernel for one block. The fields are those of ds_totals. */
struct ds_block {
    uint64_t nan, pos_inf, neg_inf, zero, negative, subnormal;
    double sum, squares, max, min;
    __int128 exact_sum, exact_max, exact_min;
};

/* Kernels take at most one block of data, which may be unaligned. */
struct ds_kernels {
    const char *name;
    /* Fills `block` from `count` elements, at least one. */
    void (*sum_up[DS_SUMMED_KINDS])(const uint8_t *data, size_t count, struct ds_block *block);
    /* Returns the sum of the squared distances from `mean`; all elements are finite. NULL for
     * integers of up to 2 bytes, for which the sums are exact. */
    double (*spread[DS_SUMMED_KINDS])(const uint8_t *data, size_t count, double mean);
};

extern const struct ds_kernels ds_portable_kernels;
#if defined(__x86_64__)
extern const struct ds_kernels ds_avx2_kernels;
#elif defined(__aarch64__)
extern const struct ds_kernels ds_neon_kernels;
#endif

/* The kernels for statistics that begin now. */
const struct ds_kernels *ds_kernels_in_use(void);

/* Counting by value: `count` elements into `counters`. */
void ds_count_bytes(uint64_t counters[DS_COUNTER_TABLES][256], const uint8_t *data, size_t count);
void ds_count_bits6(uint64_t counters[DS_COUNTER_TABLES][256], const uint8_t *data, size_t count);
void ds_count_exponents(uint64_t counters[DS_COUNTER_TABLES][256], enum ds_kind kind, const uint8_t *data,
                        size_t count);

/* Fills the summary from totals and counters, after all blocks were taken. */
void ds_statistics_summarise(const struct ds_statistics *statistics, struct ds_summary *summary,
                             uint64_t histogram[256]);

/* Smaller magnitudes than `min_normal` are subnormal; 0 where there are none, or where a table
 * comes with its own. */
static const struct {
    const char *name;
    double min_normal;
    uint8_t bits;
} DS_KIND[DS_KINDS] = {
    [DS_F8] = {"f8", 0x1p-1022, 64}, [DS_F4] = {"f4", 0x1p-126, 32},
    [DS_F2] = {"f2", 0x1p-14, 16},   [DS_BF16] = {"bf16", 0x1p-126, 16},
    [DS_I8] = {"i8", 0, 64},         [DS_U8] = {"u8", 0, 64},
    [DS_I4] = {"i4", 0, 32},         [DS_U4] = {"u4", 0, 32},
    [DS_I2] = {"i2", 0, 16},         [DS_U2] = {"u2", 0, 16},
    [DS_I1] = {"i1", 0, 8},          [DS_U1] = {"u1", 0, 8},
    [DS_BOOL] = {"bool", 0, 8},      [DS_BYTE] = {"byte", 0, 8},
    [DS_BITS6] = {"bits6", 0, 6},    [DS_BITS4] = {"bits4", 0, 4},
    [DS_BITS2] = {"bits2", 0, 2},    [DS_BITS1] = {"bits1", 0, 1},
};

static inline bool ds_kind_is_integer(enum ds_kind kind) {
    return kind >= DS_I8 && kind <= DS_BOOL;
}

/* Whether `table`, `counters` and `loose` are in use. */
static inline bool ds_counts_values(const struct ds_statistics *statistics) {
    return statistics->histogram || statistics->kind >= DS_SUMMED_KINDS;
}

/* Adds `value` to the pair `sum` + `error`: `error` keeps what rounding loses. */
static inline void ds_add(double *sum, double *error, double value) {
    double total = *sum + value;
    double rounded = total - *sum;
    *error += (*sum - (total - rounded)) + (value - rounded);
    *sum = total;
}

/* The nearest double to a pair; a sum that overflowed stays as it is. */
static inline double ds_pair(double sum, double error) {
    return error - error == 0 ? sum + error : sum;
}
