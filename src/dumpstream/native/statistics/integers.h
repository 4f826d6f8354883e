/* Kernels for integers, with the vectors of the kernel set that includes this file. */
#pragma once

#include "vectors.h"

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

/* Integers of 4 and 2 bytes, in 4 bytes. The top bit of unsigned integers of 4 bytes is
 * flipped: read as signed, they are then 2^31 smaller. */

struct integer_lanes {
    vd sum[2 * DS_GROUP], squares[2 * DS_GROUP];
    vi max, min, zero, negative;
};

/* Takes the vector of the group with the number `at`. */
DS_INLINE void take_integers(struct integer_lanes *lanes, size_t at, vi x, bool flipped) {
    vi zero = (vi){0} + (flipped ? INT32_MIN : 0);
    vd offset = (vd){0} + (flipped ? 0x1p31 : 0);
    x ^= zero;
    lanes->max = max_i(lanes->max, x);
    lanes->min = min_i(lanes->min, x);
    lanes->zero -= x == zero;
    lanes->negative -= x < zero;
    vd low = low_i(x) + offset, high = high_i(x) + offset;
    lanes->sum[2 * at] += low;
    lanes->sum[2 * at + 1] += high;
    lanes->squares[2 * at] += low * low;
    lanes->squares[2 * at + 1] += high * high;
}

DS_INLINE void reduce_integers(const struct integer_lanes *lanes, struct ds_block *block, bool flipped) {
    int32_t max = INT32_MIN, min = INT32_MAX;
    DS_FIND_EXTREMES(lanes, max, min);
    double offset = flipped ? 0x1p31 : 0;
    *block = (struct ds_block){.zero = count_of(lanes->zero),
                               .negative = count_of(lanes->negative),
                               .sum = sum_of(lanes->sum, 2),
                               .squares = sum_of(lanes->squares, 2),
                               .max = max + offset,
                               .min = min + offset};
}

DS_INLINE void sum_up_integers(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block) {
    bool flipped = kind == DS_U4;
    size_t width = ds_width(kind), i = 0;
    struct integer_lanes lanes = {.max = (vi){0} + INT32_MIN, .min = (vi){0} + INT32_MAX};
    while (i + DS_GROUP * DS_LANES <= count) {
        read_ahead(data + i * width);
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_LANES)
            take_integers(&lanes, at, load_integers(kind, data + i * width), flipped);
    }
    reduce_integers(&lanes, block, flipped);
    for (; i < count; i++)
        ds_block_add(block, ds_element(kind, data + i * width), 0);
    ds_block_set_exact(block);
}

/* Integers of 8 bytes: sums of their halves, squares in doubles. */

struct long_lanes {
    vu low_sum, high_sum;
    vd squares[DS_GROUP];
    vl max, min;
    vu zero, negative;
};

/* The elements plus 2^63 if they are signed: never negative, in the same order. */
DS_INLINE vu load_biased(enum ds_kind kind, const uint8_t *data) {
    return DS_LOAD(vu, data) ^ (kind == DS_I8 ? (uint64_t)INT64_MIN : 0);
}

/* Their values. Each half is put into the mantissa of a large double, and what that adds is
 * subtracted again, exactly. Only the sum of the halves is rounded. */
DS_INLINE vd biased_values(enum ds_kind kind, vu biased) {
    double bias = kind == DS_I8 ? 0x1p63 : 0;
    vd low = (vd)((biased & UINT32_MAX) | 0x4330000000000000) - 0x1p52;
    vd high = (vd)(biased >> 32 | 0x4530000000000000) - (0x1p84 + bias);
    return low + high;
}

/* Takes the vector of the group with the number `at`. */
DS_INLINE void take_longs(enum ds_kind kind, struct long_lanes *lanes, size_t at, vu biased) {
    uint64_t zero = kind == DS_I8 ? (uint64_t)INT64_MIN : 0;
    vl ordered = (vl)(biased ^ (uint64_t)INT64_MIN);
    vd value = biased_values(kind, biased);
    lanes->max = DS_SELECT(vl, ordered > lanes->max, ordered, lanes->max);
    lanes->min = DS_SELECT(vl, ordered < lanes->min, ordered, lanes->min);
    lanes->zero -= (vu)(biased == zero);
    if (kind == DS_I8)
        lanes->negative += biased >> 63 ^ 1;
    lanes->low_sum += biased & UINT32_MAX;
    lanes->high_sum += biased >> 32;
    lanes->squares[at] += value * value;
}

DS_INLINE void reduce_longs(enum ds_kind kind, const struct long_lanes *lanes, size_t count,
                            struct ds_block *block) {
    const __int128 offset = kind == DS_I8 ? 0 : (__int128)1 << 63;
    int64_t max = INT64_MIN, min = INT64_MAX;
    DS_FIND_EXTREMES(lanes, max, min);
    __int128 sum = ((__int128)count_of_wide(lanes->high_sum) << 32) + count_of_wide(lanes->low_sum);
    *block = (struct ds_block){.zero = count_of_wide(lanes->zero),
                               .negative = count_of_wide(lanes->negative),
                               .squares = sum_of(lanes->squares, 1),
                               .exact_sum = sum - (kind == DS_I8 ? (__int128)count << 63 : 0),
                               .exact_max = max + offset,
                               .exact_min = min + offset};
}

DS_INLINE void add_long(struct ds_block *block, __int128 value) {
    block->zero += value == 0;
    block->negative += value < 0;
    block->squares += (double)value * (double)value;
    block->exact_sum += value;
    block->exact_max = value > block->exact_max ? value : block->exact_max;
    block->exact_min = value < block->exact_min ? value : block->exact_min;
}

DS_INLINE void sum_up_longs(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block) {
    size_t width = ds_width(kind), i = 0;
    struct long_lanes lanes = {.max = (vl){0} + INT64_MIN, .min = (vl){0} + INT64_MAX};
    while (i + DS_GROUP * DS_DOUBLE_LANES <= count) {
        read_ahead(data + i * width);
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES)
            take_longs(kind, &lanes, at, load_biased(kind, data + i * width));
    }
    reduce_longs(kind, &lanes, i, block);
    for (; i < count; i++) {
        uint64_t bits = DS_LOAD(uint64_t, data + i * width);
        add_long(block, kind == DS_I8 ? (__int128)(int64_t)bits : (__int128)bits);
    }
    block->sum = (double)block->exact_sum;
    block->max = (double)block->exact_max;
    block->min = (double)block->exact_min;
}
