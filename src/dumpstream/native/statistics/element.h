/* One element at a time: for the ends of blocks, which do not fill a vector. */
#pragma once

#include <math.h>
#include <string.h>

#include "kernels.h"

#define DS_INLINE static inline __attribute__((always_inline))

#define DS_LOAD(type, data)                                                                                  \
    ({                                                                                                       \
        type loaded_;                                                                                        \
        memcpy(&loaded_, (data), sizeof loaded_);                                                            \
        loaded_;                                                                                             \
    })

DS_INLINE size_t ds_width(enum ds_kind kind) {
    return DS_KIND[kind].bits / 8;
}

DS_INLINE double ds_half_value(uint16_t half) {
    int exponent = half >> 10 & 31;
    int mantissa = half & 0x3ff;
    double magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                       : exponent == 0 ? mantissa * 0x1p-24
                                       : ldexp(mantissa + 1024, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

DS_INLINE double ds_bfloat16_value(uint16_t bits) {
    return DS_LOAD(float, &(uint32_t){(uint32_t)bits << 16});
}

#define DS_VALUE(kind, type)                                                                                 \
    case kind:                                                                                               \
        return (double)DS_LOAD(type, data);

/* Integers of 8 bytes are rounded. */
DS_INLINE double ds_element(enum ds_kind kind, const uint8_t *data) {
    switch (kind) {
        DS_VALUE(DS_F8, double)
        DS_VALUE(DS_F4, float)
        DS_VALUE(DS_I8, int64_t)
        DS_VALUE(DS_U8, uint64_t)
        DS_VALUE(DS_I4, int32_t)
        DS_VALUE(DS_U4, uint32_t)
        DS_VALUE(DS_I2, int16_t)
        DS_VALUE(DS_U2, uint16_t)
        DS_VALUE(DS_I1, int8_t)
    case DS_F2:
        return ds_half_value(DS_LOAD(uint16_t, data));
    case DS_BF16:
        return ds_bfloat16_value(DS_LOAD(uint16_t, data));
    default:
        return *data;
    }
}

/* Also for integers, with a `min_normal` of 0. */
DS_INLINE void ds_block_add(struct ds_block *block, double value, double min_normal) {
    block->negative += value < 0;
    if (isnan(value)) {
        block->nan++;
    } else if (isinf(value)) {
        block->pos_inf += value > 0;
        block->neg_inf += value < 0;
    } else {
        block->zero += value == 0;
        block->subnormal += value != 0 && fabs(value) < min_normal;
        block->sum += value;
        block->squares += value * value;
        block->max = fmax(block->max, value);
        block->min = fmin(block->min, value);
    }
}

/* For integers of up to 4 bytes: a double holds the sum of 2^14 of them exactly. */
DS_INLINE void ds_block_set_exact(struct ds_block *block) {
    block->exact_sum = (int64_t)block->sum;
    block->exact_max = (int64_t)block->max;
    block->exact_min = (int64_t)block->min;
}
