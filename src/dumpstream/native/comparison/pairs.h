/* What a comparison and its kernels share. */
#pragma once

#include "../statistics/kernels.h"
#include "dumpstream/comparison.h"

/* A golden element that is not larger has no relative error, as in CANN's own tool. */
#define DS_TINY 2.2e-16
#define DS_FLOAT_EPSILON 0x1p-23

/* Kernels take vectors of this many doubles; blocks are filled up with zeros, which add nothing. */
#define DS_PAIR_LANES 4

struct ds_products {
    double x, y, xx, yy, xy;
};

/* The fields are those of ds_pair_totals. */
struct ds_errors {
    double errors, squares, relative, max_error, max_relative, max_ulp;
    uint64_t beyond_1, beyond_5;
};

struct ds_pair_kernels {
    /* Turns elements into doubles. */
    void (*widen[DS_SUMMED_KINDS])(const uint8_t *data, size_t count, double *values);
    /* Counts the elements with the same bits, at most a block, by the binary logarithm of their bytes. */
    size_t (*equal[4])(const uint8_t *x, const uint8_t *y, size_t count);
    void (*multiply)(const double *x, const double *y, size_t count, struct ds_products *products);
    void (*subtract)(const double *x, const double *y, size_t count, double *difference);
    /* `least` is the smallest power of two whose units in the last place count. */
    void (*measure)(const double *x, const double *y, const double *difference, size_t count, double least,
                    struct ds_errors *errors);
    /* The sum of the squared distances from `mean`. */
    double (*spread)(const double *x, size_t count, double mean);
};

extern const struct ds_pair_kernels ds_portable_pair_kernels;
#if defined(__x86_64__)
extern const struct ds_pair_kernels ds_avx2_pair_kernels;
#elif defined(__aarch64__)
extern const struct ds_pair_kernels ds_neon_pair_kernels;
#endif

/* The binary digits of the coarser of two sides, of which one has floats. */
static inline int ds_comparison_digits(const struct ds_side *mine, const struct ds_side *golden) {
    if (mine->is_integer || golden->is_integer)
        return mine->is_integer ? golden->digits : mine->digits;
    return mine->digits < golden->digits ? mine->digits : golden->digits;
}

/* Adds the block of a comparison to its totals, and empties it. */
void ds_pairs_merge(struct ds_comparison *comparison);
