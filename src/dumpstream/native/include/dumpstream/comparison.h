/* How two tensors differ, in one pass over the bytes of both, however they are split.
 *
 * Elements become doubles in a block that fits the first cache; kernels sum up each block, and
 * the blocks are merged. The types of the two sides may differ. The same elements give the same
 * results however they are split, with every set of kernels, in every floating-point mode.
 *
 * One thread at a time may use an object, and nothing calls into Python. x is an element of mine,
 * y is its partner in the golden. Unless it says otherwise, a result covers the pairs in which
 * both are finite. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dumpstream/statistics.h"

#define DS_COMPARISON_BLOCK ((size_t)1024)
#define DS_NO_ELEMENT UINT64_MAX

/* How the elements of one tensor are read. */
struct ds_side {
    enum ds_kind kind;
    bool is_integer;
    /* Of floats: the binary digits behind the point, and the exponent of the smallest normal number. */
    int digits, exponent;
    double table[256]; /* for kinds with a table; integers in it are below 2^53 */
};

/* A sum, and what rounding has lost of it. */
struct ds_running {
    double sum, error;
};

/* Sums of products and squares of blocks whose elements are so small, or so large, that doubles lose
 * their squares are kept apart, and scaled. */
enum ds_range { DS_SMALL, DS_USUAL, DS_LARGE, DS_RANGES };

struct ds_second_moments {
    struct ds_running xx, yy, xy, squares;
};

struct ds_pair_totals {
    uint64_t count, finite, nan_both, nan_mine, nan_golden, inf_differs, bit_equal, beyond_1, beyond_5;
    struct ds_running x, y, x_spread, y_spread, errors, relative;
    struct ds_second_moments moments[DS_RANGES];
    double max_error, max_relative, max_ulp;
    double x_min, x_max, y_min, y_max;
    uint64_t worst, first_mismatch;
    double worst_x, worst_y, mismatch_x, mismatch_y;
    unsigned __int128 exact_max; /* if both are integers, and one has 8 bytes */
    __int128 exact_x, exact_y;   /* of the worst element, likewise */
    struct ds_running p, q, divergence;
};

struct ds_pair_kernels;

struct ds_comparison {
    struct ds_side mine, golden;
    const struct ds_pair_kernels *kernels;
    bool raw;        /* bytes tell whether elements are equal */
    bool wide;       /* integers beyond doubles: differences are exact */
    bool rounded;    /* integers beyond doubles, and floats */
    bool narrow;     /* the products of elements are exact as doubles */
    bool has_ulp;    /* one side has floats */
    bool extremes;   /* find the smallest and the largest elements */
    bool divergence; /* the second pass */
    double least;    /* the smallest power of two whose units in the last place count */
    struct ds_pair_totals totals;
    uintptr_t ahead[2]; /* where the elements of both go on */
    size_t filled;
    size_t equal; /* elements of the block that are equal, if raw, wide or rounded */
    double x[DS_COMPARISON_BLOCK], y[DS_COMPARISON_BLOCK], difference[DS_COMPARISON_BLOCK];
};

struct ds_comparison_summary {
    uint64_t count, finite; /* all pairs, and those in which both are finite */
    /* Of all pairs. `inf_differs`: both infinite with other signs, or one infinite and the other finite.
     * `bit_equal`: of the same kind, elements with the same bits; otherwise equal values, with the
     * sign of a zero, and never a NaN. */
    uint64_t nan_both, nan_mine, nan_golden, inf_differs, bit_equal;
    /* Pairs with |x - y| above 1/1000 and 5/1000 of |y|; for |y| = 0, of the epsilon of a float of 4 bytes.
     */
    uint64_t beyond_1, beyond_5;
    double xx, yy, xy, squares; /* sums of products and of (x - y)^2, all scaled by the same power of two */
    double rmse;                /* the root of the mean of (x - y)^2 */
    double errors, relative;    /* sums of |x - y| and |x - y| / |y| */
    double max_error, max_relative;      /* |y| <= 2.2e-16 has a relative error of 0 */
    bool has_ulp;                        /* one side has floats */
    double max_ulp;                      /* |x - y|, in units in the last place of the larger of both */
    double x_mean, y_mean, x_std, y_std; /* without a meaning if no pair is finite */
    bool is_integer;                     /* both are integers: the largest error is exact */
    unsigned __int128 exact_max;
    /* The first pair with the largest error. If no finite pair differs: the first in which a NaN or an
     * infinity has no equal. DS_NO_ELEMENT if there is none of these. */
    uint64_t worst;
    double worst_x, worst_y;
    __int128 exact_x, exact_y; /* if both are integers */
    bool has_divergence;
    double divergence;
};

/* Begins a comparison with the kernels in use. With `extremes`, a second pass may follow. */
void ds_comparison_init(struct ds_comparison *comparison, const struct ds_side *mine,
                        const struct ds_side *golden, bool extremes);

/* Begins the second pass, in which all elements come once more: the Kullback-Leibler divergence
 * of mine from the golden. Each side is scaled to 0..1 by its extremes, raised to at least the epsilon
 * of a float of 4 bytes, and divided by its sum. */
void ds_comparison_again(struct ds_comparison *comparison);

/* Takes the next `count` elements of both. Elements of fewer than 8 bits begin with a byte. */
void ds_comparison_update(struct ds_comparison *comparison, const void *mine, const void *golden,
                          size_t count);

/* How many elements of that kind `length` bytes have. */
size_t ds_kind_elements(enum ds_kind kind, size_t length);

/* Takes all elements of two tensors after init, with the second pass if it was to have extremes, and sums
 * them up; nothing may follow. Of small tensors this takes less time than one call after the other. */
void ds_comparison_whole(struct ds_comparison *comparison, const void *mine, const void *golden, size_t count,
                         struct ds_comparison_summary *summary);

/* Sums up the pairs so far. Updates may follow. */
void ds_comparison_result(const struct ds_comparison *comparison, struct ds_comparison_summary *summary);
