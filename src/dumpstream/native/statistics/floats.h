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
    vd sum[2], squares[2];
    vf max, min;
    vi zero, tiny, negative, nan, pos_inf, neg_inf;
};

DS_INLINE void take_singles(struct single_lanes *lanes, vf x, float min_normal, bool checked) {
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
    lanes->sum[0] += low;
    lanes->sum[1] += high;
    lanes->squares[0] += low * low;
    lanes->squares[1] += high * high;
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
                               .sum = sum_of(lanes->sum[0] + lanes->sum[1]),
                               .squares = sum_of(lanes->squares[0] + lanes->squares[1]),
                               .max = max,
                               .min = min};
}

DS_INLINE void sum_up_singles(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block,
                              bool checked) {
    float min_normal = (float)DS_KIND[kind].min_normal;
    size_t width = ds_width(kind), i = 0;
    struct single_lanes lanes = {.max = (vf){0} - INFINITY, .min = (vf){0} + INFINITY};
    for (; i + DS_LANES <= count; i += DS_LANES) {
        read_ahead(data + i * width);
        take_singles(&lanes, load_floats(kind, data + i * width), min_normal, checked);
    }
    reduce_singles(&lanes, block);
    for (; i < count; i++)
        ds_block_add(block, ds_element(kind, data + i * width), min_normal);
}

/* Floats of 8 bytes. ds_add takes the sum after a few additions, so that the error stays
 * below that of a pairwise sum. */

#define DS_CHAINS 4
#define DS_RUN (16 * DS_CHAINS * DS_DOUBLE_LANES)

struct double_lanes {
    vd sum[DS_CHAINS], squares[DS_CHAINS];
    vd max, min;
    vu zero, tiny, negative, nan, pos_inf, neg_inf;
};

DS_INLINE void take_doubles(struct double_lanes *lanes, size_t chain, vd x, bool checked) {
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
    lanes->sum[chain] += for_sum;
    lanes->squares[chain] += for_sum * for_sum;
}

/* Moves the sum of the chains into the pair. */
DS_INLINE void end_run(struct double_lanes *lanes, double *sum, double *error) {
    vd run = (lanes->sum[0] + lanes->sum[1]) + (lanes->sum[2] + lanes->sum[3]);
    ds_add(sum, error, sum_of(run));
    for (size_t chain = 0; chain < DS_CHAINS; chain++)
        lanes->sum[chain] = (vd){0};
}

DS_INLINE void reduce_doubles(const struct double_lanes *lanes, struct ds_block *block) {
    double max = -INFINITY, min = INFINITY;
    DS_FIND_EXTREMES(lanes, max, min);
    const vd *squares = lanes->squares;
    uint64_t zero = count_of_wide(lanes->zero);
    *block = (struct ds_block){.nan = count_of_wide(lanes->nan),
                               .pos_inf = count_of_wide(lanes->pos_inf),
                               .neg_inf = count_of_wide(lanes->neg_inf),
                               .zero = zero,
                               .negative = count_of_wide(lanes->negative),
                               .subnormal = count_of_wide(lanes->tiny) - zero,
                               .squares = sum_of((squares[0] + squares[1]) + (squares[2] + squares[3])),
                               .max = max,
                               .min = min};
}

DS_INLINE void sum_up_doubles(const uint8_t *data, size_t count, struct ds_block *block, bool checked) {
    const size_t width = sizeof(double), step = DS_CHAINS * DS_DOUBLE_LANES;
    struct double_lanes lanes = {.max = (vd){0} - INFINITY, .min = (vd){0} + INFINITY};
    double sum = 0, error = 0;
    size_t i = 0;
    while (i + step <= count) {
        for (size_t chain = 0; chain < DS_CHAINS; chain++, i += DS_DOUBLE_LANES) {
            read_ahead(data + i * width);
            take_doubles(&lanes, chain, DS_LOAD(vd, data + i * width), checked);
        }
        if (i % DS_RUN == 0)
            end_run(&lanes, &sum, &error);
    }
    for (; i + DS_DOUBLE_LANES <= count; i += DS_DOUBLE_LANES)
        take_doubles(&lanes, 0, DS_LOAD(vd, data + i * width), checked);
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
