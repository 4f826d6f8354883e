/* Kernels for integers of 1 byte, with the vectors of the kernel set that includes this file.
 * The top bit of unsigned integers is flipped: read as signed, they are then 128 smaller.
 * Their sums are corrected at the end, exactly. */
#pragma once

#include "vectors.h"

/* The number of vectors before lanes of 1 and 2 bytes could overflow. */
#define DS_BYTE_RUN 64

struct byte_lanes {
    vb max, min, zero, negative;
    vh sum;
    viu squares;
};

struct byte_sums {
    int64_t sum;
    uint64_t squares, zero, negative;
};

/* Adds neighbours, in lanes of twice the width. */
DS_INLINE vi widen(vh x) {
    return ((vi)((viu)x << 16) >> 16) + ((vi)x >> 16);
}

DS_INLINE viu widen_unsigned(vhu x) {
    return ((viu)x & 0xffff) + ((viu)x >> 16);
}

DS_INLINE uint64_t count_of_bytes(vb x) {
    return count_of((vi)widen_unsigned(((vhu)x & 0xff) + ((vhu)x >> 8)));
}

DS_INLINE void take_bytes(struct byte_lanes *lanes, vb x, vb zero) {
    vh even = (vh)((vhu)x << 8) >> 8, odd = (vh)x >> 8;
    lanes->max = max_b(lanes->max, x);
    lanes->min = min_b(lanes->min, x);
    lanes->zero -= x == zero;
    lanes->negative -= x < zero;
    lanes->sum += even + odd;
    lanes->squares += widen_unsigned((vhu)(even * even) + (vhu)(odd * odd));
}

/* Adds to `sums` what would overflow in the lanes. */
DS_INLINE void end_byte_run(struct byte_lanes *lanes, struct byte_sums *sums) {
    vi sum = widen(lanes->sum);
    for (size_t i = 0; i < DS_LANES; i++)
        sums->sum += sum[i];
    sums->squares += count_of((vi)lanes->squares);
    sums->zero += count_of_bytes(lanes->zero);
    sums->negative += count_of_bytes(lanes->negative);
    lanes->sum = (vh){0};
    lanes->squares = (viu){0};
    lanes->zero = lanes->negative = (vb){0};
}

DS_INLINE void reduce_bytes(const struct byte_lanes *lanes, const struct byte_sums *sums, size_t count,
                            int offset, struct ds_block *block) {
    int max = INT8_MIN, min = INT8_MAX;
    DS_FIND_EXTREMES(lanes, max, min);
    int64_t moved = (int64_t)count * offset;
    *block = (struct ds_block){.zero = sums->zero,
                               .negative = sums->negative,
                               .sum = (double)(sums->sum + moved),
                               .squares = (double)((int64_t)sums->squares + (2 * sums->sum + moved) * offset),
                               .max = max + offset,
                               .min = min + offset};
}

DS_INLINE void sum_up_bytes(enum ds_kind kind, const uint8_t *data, size_t count, struct ds_block *block) {
    const vb zero = (vb){0} + (int8_t)(kind == DS_U1 ? INT8_MIN : 0);
    struct byte_lanes lanes = {.max = (vb){0} + INT8_MIN, .min = (vb){0} + INT8_MAX};
    struct byte_sums sums = {0};
    size_t i = 0, taken = 0;
    for (; i + DS_VECTOR_BYTES <= count; i += DS_VECTOR_BYTES) {
        read_ahead(data + i);
        take_bytes(&lanes, DS_LOAD(vb, data + i) ^ zero, zero);
        if (++taken % DS_BYTE_RUN == 0)
            end_byte_run(&lanes, &sums);
    }
    end_byte_run(&lanes, &sums);
    reduce_bytes(&lanes, &sums, i, kind == DS_U1 ? 128 : 0, block);
    for (; i < count; i++)
        ds_block_add(block, ds_element(kind, data + i), 0);
    ds_block_set_exact(block);
}
