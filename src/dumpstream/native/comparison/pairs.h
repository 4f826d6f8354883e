/* What a comparison and its kernels share. */
#pragma once

#include "../statistics/kernels.h"
#include "dumpstream/comparison.h"

/* A golden element that is not larger has no relative error, as in CANN's own tool. */
#define DS_TINY 2.2e-16
#define DS_FLOAT_EPSILON 0x1p-23

/* Kernels take this many pairs at a time; blocks are filled up with zeros, which add nothing. */
#define DS_PAIR_LANES 8

/* A block of pairs. While they are summed up, the processor reads what comes next, element by element of
 * `width` bytes; these addresses may be anywhere. */
struct ds_pairs {
    const double *x, *y;
    size_t count;
    uintptr_t ahead[2];
    size_t width[2];
};

struct ds_products {
    double x, y, xx, yy, xy;
};

/* The ratio of an error is that to |y|, or to DS_TINY if that is larger. */
struct ds_errors {
    double errors, squares, relative, max_error, max_ratio;
    uint64_t beyond_1, beyond_5;
    bool tiny; /* a pair with |y| <= DS_TINY has an error */
};

struct ds_pair_kernels {
    /* Turns elements into doubles. */
    void (*widen[DS_SUMMED_KINDS])(const uint8_t *data, size_t count, double *values);
    /* Counts the elements with the same bits, at most a block, by the binary logarithm of their bytes. */
    size_t (*equal[4])(const uint8_t *x, const uint8_t *y, size_t count);
    /* The second is for narrow elements, whose products a double holds. */
    void (*multiply[2])(const struct ds_pairs *pairs, struct ds_products *products);
    void (*measure)(const struct ds_pairs *pairs, struct ds_errors *errors);
    /* For integers that are not exact as doubles: their differences are given. */
    void (*measure_given)(const struct ds_pairs *pairs, const double *difference, struct ds_errors *errors);
    /* Where the first pair with this error is, which is above 0 and which one of them has. */
    size_t (*find_error)(const struct ds_pairs *pairs, double error);
    /* The largest relative error; `difference` may be NULL. */
    double (*max_relative)(const struct ds_pairs *pairs, const double *difference);
    /* The largest error as a share of the power of two below the larger of x and y, or of `least`. It is
     * below 4, and below twice the largest ratio if no tiny pair has an error. */
    double (*max_ulp)(const struct ds_pairs *pairs, double least);
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

/* Ends a comparison, in the default floating-point environment. */
void ds_pairs_summarise(struct ds_comparison *comparison, struct ds_comparison_summary *summary);
