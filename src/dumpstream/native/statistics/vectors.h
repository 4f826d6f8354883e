/* Vectors of DS_VECTOR_BYTES, with the vector extensions of GCC and clang. The lanes of a
 * comparison are 0 or -1, so subtracting a comparison counts it. */
#pragma once

#include "element.h"

#define DS_LANES (DS_VECTOR_BYTES / sizeof(float))
#define DS_DOUBLE_LANES (DS_VECTOR_BYTES / sizeof(double))

typedef int8_t vb __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef int16_t vh __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef float vf __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef double vd __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef int64_t vl __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef uint64_t vu __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef uint16_t vhu __attribute__((vector_size(DS_VECTOR_BYTES)));
typedef uint32_t viu __attribute__((vector_size(DS_VECTOR_BYTES)));

/* Each kernel set defines the operations that the extensions do not have: the larger and the
 * smaller by lane, ... */
DS_INLINE vf max_f(vf a, vf b);
DS_INLINE vf min_f(vf a, vf b);
DS_INLINE vd max_d(vd a, vd b);
DS_INLINE vd min_d(vd a, vd b);
DS_INLINE vi max_i(vi a, vi b);
DS_INLINE vi min_i(vi a, vi b);
DS_INLINE vb max_b(vb a, vb b);
DS_INLINE vb min_b(vb a, vb b);
/* ... the first and the second half as doubles, ... */
DS_INLINE vd low_f(vf x);
DS_INLINE vd high_f(vf x);
DS_INLINE vd low_i(vi x);
DS_INLINE vd high_i(vi x);
/* ... and elements of 2 bytes as elements of 4. */
DS_INLINE vf load_f2(const uint8_t *data);
DS_INLINE vi load_i2(const uint8_t *data);
DS_INLINE vi load_u2(const uint8_t *data);

/* A set defines an operation of two vectors `a` and `b`, or of one vector `x`, by its result. */
#define DS_OF_TWO(type, name, result)                                                                        \
    type name(type a, type b) {                                                                              \
        return result;                                                                                       \
    }
#define DS_OF_ONE(type, name, from, ...)                                                                     \
    type name(from x) {                                                                                      \
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

DS_INLINE vf load_floats(enum ds_kind kind, const uint8_t *data) {
    switch (kind) {
    case DS_F2:
        return load_f2(data);
    case DS_BF16:
        return (vf)(load_u2(data) << 16);
    default:
        return DS_LOAD(vf, data);
    }
}

DS_INLINE vi load_integers(enum ds_kind kind, const uint8_t *data) {
    switch (kind) {
    case DS_I2:
        return load_i2(data);
    case DS_U2:
        return load_u2(data);
    default:
        return DS_LOAD(vi, data);
    }
}

DS_INLINE double sum_of(vd x) {
    double sum = 0;
    for (size_t i = 0; i < DS_DOUBLE_LANES; i++)
        sum += x[i];
    return sum;
}

DS_INLINE uint64_t count_of(vi x) {
    uint64_t sum = 0;
    for (size_t i = 0; i < DS_LANES; i++)
        sum += (uint32_t)x[i];
    return sum;
}

DS_INLINE uint64_t count_of_wide(vu x) {
    uint64_t sum = 0;
    for (size_t i = 0; i < DS_DOUBLE_LANES; i++)
        sum += x[i];
    return sum;
}
