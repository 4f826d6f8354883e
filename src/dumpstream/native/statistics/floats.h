/* Kernels for floats, with the vectors of the kernel set that includes this file. */
#pragma once

#include "vectors.h"

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

/* Floats of 4 and 2 bytes, as floats */

struct single_lanes {
    vd sum[2 * DS_GROUP], squares[2 * DS_GROUP];
    vf max, min;
    vi zero, tiny, negative, nan, pos_inf, neg_inf;
};

/* Takes the vector of the group with the number `at`. */
DS_INLINE void take_singles(struct single_lanes *lanes, size_t at, vf x, float min_normal, bool checked) {
    const vf infinity = (vf){0} + INFINITY;
    vf magnitude = (vf)((vi)x & INT32_MAX);
    vf for_max = x, for_min = x, for_sum = x;
    if (checked) {
        vi finite = (vi)(magnitude < infinity);
        lanes->nan -= (vi)(x != x);
        lanes->pos_inf -= (vi)(x == infinity);
        lanes->neg_inf -= (vi)(x == -infinity);
        for_sum = (vf)((vi)x & finite);
        for_max = DS_SELECT(vf, finite, x, -infinity);
        for_min = DS_SELECT(vf, finite, x, infinity);
    }
    lanes->max = max_f(lanes->max, for_max);
    lanes->min = min_f(lanes->min, for_min);
    lanes->zero -= (vi)(x == 0);
    lanes->tiny -= (vi)(magnitude < min_normal);
    lanes->negative -= (vi)(x < 0);
    vd low = low_f(for_sum), high = high_f(for_sum);
    lanes->sum[2 * at] += low;
    lanes->sum[2 * at + 1] += high;
    lanes->squares[2 * at] = add_product_f(lanes->squares[2 * at], low, low);
    lanes->squares[2 * at + 1] = add_product_f(lanes->squares[2 * at + 1], high, high);
}

DS_INLINE void reduce_singles(const struct single_lanes *lanes, struct ds_block *block) {
    float max = -INFINITY, min = INFINITY;
    DS_FIND_EXTREMES(lanes, max, min);
    uint64_t zero = count_of(lanes->zero);
    *block = (struct ds_block){.nan = count_of(lanes->nan),
                               .pos_inf = count_of(lanes->pos_inf),
                               .neg_inf = count_of(lanes->neg_inf),
                               .zero = zero,
                               .negative = count_of(lanes->negative),
                               .subnormal = count_of(lanes->tiny) - zero,
                               .sum = sum_of(lanes->sum, 2),
                               .squares = sum_of(lanes->squares, 2),
                               .max = max,
                               .min = min};
}

DS_INLINE void sum_up_singles(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block,
                              bool checked) {
    float min_normal = (float)DS_KIND[kind].min_normal;
    size_t width = ds_width(kind), i = 0;
    struct single_lanes lanes = {.max = (vf){0} - INFINITY, .min = (vf){0} + INFINITY};
    while (i + DS_GROUP * DS_LANES <= count) {
        read_ahead(data + i * width);
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_LANES)
            take_singles(&lanes, at, load_floats(kind, data + i * width), min_normal, checked);
    }
    reduce_singles(&lanes, block);
    for (; i < count; i++)
        ds_block_add(block, ds_element(kind, data + i * width), min_normal);
}

/* Floats of 8 bytes. ds_add takes the sum after a few additions, so that the error stays
 * below that of a pairwise sum. */

#define DS_CHAINS 4
#define DS_RUN (16 * DS_CHAINS * DS_GROUP * DS_DOUBLE_LANES)

struct double_lanes {
    vd sum[DS_CHAINS * DS_GROUP], squares[DS_CHAINS * DS_GROUP];
    vd max, min;
    vu zero, tiny, negative, nan, pos_inf, neg_inf;
};

/* Takes the vector with the number `at` of the groups of all chains. */
DS_INLINE void take_doubles(struct double_lanes *lanes, size_t at, vd x, bool checked) {
    const vd infinity = (vd){0} + INFINITY;
    vd magnitude = (vd)((vl)x & INT64_MAX);
    vd for_max = x, for_min = x, for_sum = x;
    if (checked) {
        vl finite = (vl)(magnitude < infinity);
        lanes->nan -= (vu)(x != x);
        lanes->pos_inf -= (vu)(x == infinity);
        lanes->neg_inf -= (vu)(x == -infinity);
        for_sum = (vd)((vl)x & finite);
        for_max = DS_SELECT(vd, finite, x, -infinity);
        for_min = DS_SELECT(vd, finite, x, infinity);
    }
    lanes->max = max_d(lanes->max, for_max);
    lanes->min = min_d(lanes->min, for_min);
    lanes->zero -= (vu)(x == 0);
    lanes->tiny -= (vu)(magnitude < DS_KIND[DS_F8].min_normal);
    lanes->negative -= (vu)(x < 0);
    lanes->sum[at] += for_sum;
    lanes->squares[at] += for_sum * for_sum;
}

/* Moves the sum of the chains into the pair. */
DS_INLINE void end_run(struct double_lanes *lanes, double *sum, double *error) {
    ds_add(sum, error, sum_of(lanes->sum, DS_CHAINS));
    for (size_t at = 0; at < DS_CHAINS * DS_GROUP; at++)
        lanes->sum[at] = (vd){0};
}

DS_INLINE void reduce_doubles(const struct double_lanes *lanes, struct ds_block *block) {
    double max = -INFINITY, min = INFINITY;
    DS_FIND_EXTREMES(lanes, max, min);
    uint64_t zero = count_of_wide(lanes->zero);
    *block = (struct ds_block){.nan = count_of_wide(lanes->nan),
                               .pos_inf = count_of_wide(lanes->pos_inf),
                               .neg_inf = count_of_wide(lanes->neg_inf),
                               .zero = zero,
                               .negative = count_of_wide(lanes->negative),
                               .subnormal = count_of_wide(lanes->tiny) - zero,
                               .squares = sum_of(lanes->squares, DS_CHAINS),
                               .max = max,
                               .min = min};
}

DS_INLINE void sum_up_doubles(const uint8_t *data, size_t count, struct ds_block *block, bool checked) {
    const size_t width = sizeof(double), group = DS_GROUP * DS_DOUBLE_LANES;
    struct double_lanes lanes = {.max = (vd){0} - INFINITY, .min = (vd){0} + INFINITY};
    double sum = 0, error = 0;
    size_t i = 0;
    while (i + DS_CHAINS * group <= count) {
        for (size_t at = 0; at < DS_CHAINS * DS_GROUP; at++, i += DS_DOUBLE_LANES) {
            read_ahead(data + i * width);
            take_doubles(&lanes, at, DS_LOAD(vd, data + i * width), checked);
        }
        if (i % DS_RUN == 0)
            end_run(&lanes, &sum, &error);
    }
    while (i + group <= count)
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES)
            take_doubles(&lanes, at, DS_LOAD(vd, data + i * width), checked);
    end_run(&lanes, &sum, &error);
    reduce_doubles(&lanes, block);
    block->sum = ds_pair(sum, error);
    for (; i < count; i++)
        ds_block_add(block, DS_LOAD(double, data + i * width), DS_KIND[DS_F8].min_normal);
}

DS_INLINE void pass_floats(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block,
                           bool checked) {
    if (kind == DS_F8)
        sum_up_doubles(data, count, block, checked);
    else
        sum_up_singles(kind, data, count, block, checked);
}

/* The first pass leaves out what only blocks with NaN or infinities need. The squares of such
 * blocks are not finite, and they get a second pass. */
DS_INLINE void sum_up_floats(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block) {
    pass_floats(kind, data, count, block, false);
    if (!isfinite(block->squares))
        pass_floats(kind, data, count, block, true);
}
