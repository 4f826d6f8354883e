/* Vectors of DS_VECTOR_BYTES, with the vector extensions of GCC and clang. The lanes of a
 * comparison are 0 or -1, so subtracting a comparison counts it. */
#pragma once

#include "element.h"

#define DS_LANES (DS_VECTOR_BYTES / sizeof(float))
#define DS_DOUBLE_LANES (DS_VECTOR_BYTES / sizeof(double))

/* Kernels take a group of vectors at a time, with sums of its own for each: 32 bytes, whatever
 * the size of a vector is. So all sets add the same numbers in the same order, and their
 * results are the same to the last digit. */
#define DS_GROUP (32 / DS_VECTOR_BYTES)

typedef int8_t vb __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef int16_t vh __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef float vf __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef double vd __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef int64_t vl __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef uint64_t vu __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef uint16_t vhu __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef uint32_t viu __attribute__((vector_size(DS_VECTOR_BYTES)));

/* Each kernel set has a header, vectors_<set>.h, that defines DS_VECTOR_BYTES, includes this file
 * and then defines the operations that the extensions do not have: the larger and the
 * smaller by lane (max_f, min_f for vf, and so on for vd, vi and vb); the first and the second
 * half as doubles (low_f, high_f, low_i, high_i); `a` plus the product of
 * `b` and `c`, which were floats, so that it is exact, and fusing the two changes nothing (add_product_f);
 * and elements of 2 bytes as elements of 4 (load_f2, load_i2, load_u2). A set defines an operation of two
 * vectors `a` and `b`, or of one vector `x`, by its result. */
#define DS_OF_TWO(type, name, result)                                                                        \
    DS_INLINE type name(type a, type b) {                                                                    \
        return result;                                                                                       \
    }
#define DS_OF_ONE(type, name, from, ...)                                                                     \
    DS_INLINE type name(from x) {                                                                            \
        return __VA_ARGS__;                                                                                  \
    }

/* `a` where `mask` is set, otherwise `b`. */
#define DS_SELECT(type, mask, a, b)                                                                          \
    ((type)(((mask) & (__typeof__(mask))(a)) | (~(mask) & (__typeof__(mask))(b))))

/* Loading and reducing */

/* Prefetches what comes later, also from the next block: a processor does not prefetch across
 * pages by itself. The address may be past the end of the buffer. */
DS_INLINE void read_ahead(const uint8_t *data) {
    __builtin_prefetch((const void *)((uintptr_t)data + 2048));
}

/* Raises `largest` to the largest lane of lanes->max, and lowers `smallest` likewise. */
#define DS_FIND_EXTREMES(lanes, largest, smallest)                                                           \
    for (size_t i_ = 0; i_ < sizeof((lanes)->max) / sizeof((lanes)->max[0]); i_++) {                         \
        largest = (lanes)->max[i_] > largest ? (lanes)->max[i_] : largest;                                   \
        smallest = (lanes)->min[i_] < smallest ? (lanes)->min[i_] : smallest;                                \
    }

/* Defines a sum over the lanes of a vector. */
#define DS_SUM_OF(result, name, from, lane)                                                                  \
    DS_INLINE result name(from x) {                                                                          \
        result sum = 0;                                                                                      \
        for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)                                                  \
            sum += lane;                                                                                     \
        return sum;                                                                                          \
    }
DS_SUM_OF(uint64_t, count_of, vi, (uint32_t)x[i])
DS_SUM_OF(uint64_t, count_of_wide, vu, x[i])

/* Adds lane by lane first, `groups` groups pairwise (1, 2 or 4 of them), and then the lanes. */
DS_INLINE double sum_of(const vd *sums, size_t groups) {
    double sum = 0;
    for (size_t i = 0; i < DS_GROUP; i++) {
        vd lanes = sums[i];
        if (groups > 1)
            lanes += sums[i + DS_GROUP];
        if (groups > 2)
            lanes += sums[i + 2 * DS_GROUP] + sums[i + 3 * DS_GROUP];
        for (size_t lane = 0; lane < DS_DOUBLE_LANES; lane++)
            sum += lanes[lane];
    }
    return sum;
}
