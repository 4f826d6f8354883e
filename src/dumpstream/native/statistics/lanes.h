/* All kernels of one set, written once: the set includes this file with
 * DS_VECTOR_BYTES set, and then provides what vectors.h asks for. */
#pragma once

#include "bytes.h"
#include "floats.h"
#include "integers.h"

/* Distances from the mean */

DS_INLINE void load_pair(enum ds_kind kind, const uint8_t *data, vd pair[2]) {
    switch (kind) {
    case DS_F8:
        pair[0] = DS_LOAD(vd, data);
        pair[1] = DS_LOAD(vd, data + DS_VECTOR_BYTES);
        break;
    case DS_I8:
    case DS_U8:
        pair[0] = biased_values(kind, load_biased(kind, data));
        pair[1] = biased_values(kind, load_biased(kind, data + DS_VECTOR_BYTES));
        break;
    case DS_F4:
    case DS_F2:
    case DS_BF16: {
        vf x = load_floats(kind, data);
        pair[0] = low_f(x);
        pair[1] = high_f(x);
        break;
    }
    default: {
        vi x = DS_LOAD(vi, data) ^ (kind == DS_U4 ? INT32_MIN : 0);
        double offset = kind == DS_U4 ? 0x1p31 : 0;
        pair[0] = low_i(x) + offset;
        pair[1] = high_i(x) + offset;
    }
    }
}

DS_INLINE double spread(enum ds_kind kind, const uint8_t *data, size_t count, double mean) {
    size_t width = ds_width(kind), i = 0;
    vd squares[2] = {{0}, {0}};
    for (; i + DS_LANES <= count; i += DS_LANES) {
        vd pair[2];
        load_pair(kind, data + i * width, pair);
        for (size_t half = 0; half < 2; half++) {
            vd distance = pair[half] - mean;
            squares[half] += distance * distance;
        }
    }
    double sum = sum_of(squares[0] + squares[1]);
    for (; i < count; i++) {
        double distance = ds_element(kind, data + i * width) - mean;
        sum += distance * distance;
    }
    return sum;
}

/* The functions of the set */

#define DS_SUM_UP(suffix, kind, sum_up_kind)                                                                 \
    static void sum_up_##suffix(const uint8_t *data, size_t count, struct ds_block *block) {                 \
        sum_up_kind(kind, data, count, block);                                                               \
    }

#define DS_SPREAD(suffix, kind)                                                                              \
    static double spread_##suffix(const uint8_t *data, size_t count, double mean) {                          \
        return spread(kind, data, count, mean);                                                              \
    }

DS_SUM_UP(f8, DS_F8, sum_up_floats)
DS_SUM_UP(f4, DS_F4, sum_up_floats)
DS_SUM_UP(f2, DS_F2, sum_up_floats)
DS_SUM_UP(bf16, DS_BF16, sum_up_floats)
DS_SUM_UP(i8, DS_I8, sum_up_longs)
DS_SUM_UP(u8, DS_U8, sum_up_longs)
DS_SUM_UP(i4, DS_I4, sum_up_integers)
DS_SUM_UP(u4, DS_U4, sum_up_integers)
DS_SUM_UP(i2, DS_I2, sum_up_integers)
DS_SUM_UP(u2, DS_U2, sum_up_integers)
DS_SUM_UP(i1, DS_I1, sum_up_bytes)
DS_SUM_UP(u1, DS_U1, sum_up_bytes)

DS_SPREAD(f8, DS_F8)
DS_SPREAD(f4, DS_F4)
DS_SPREAD(f2, DS_F2)
DS_SPREAD(bf16, DS_BF16)
DS_SPREAD(i8, DS_I8)
DS_SPREAD(u8, DS_U8)
DS_SPREAD(i4, DS_I4)
DS_SPREAD(u4, DS_U4)

#define DS_KERNEL_TABLE(set)                                                                                 \
    {                                                                                                        \
        .name = set,                                                                                         \
        .sum_up = {[DS_F8] = sum_up_f8,                                                                      \
                   [DS_F4] = sum_up_f4,                                                                      \
                   [DS_F2] = sum_up_f2,                                                                      \
                   [DS_BF16] = sum_up_bf16,                                                                  \
                   [DS_I8] = sum_up_i8,                                                                      \
                   [DS_U8] = sum_up_u8,                                                                      \
                   [DS_I4] = sum_up_i4,                                                                      \
                   [DS_U4] = sum_up_u4,                                                                      \
                   [DS_I2] = sum_up_i2,                                                                      \
                   [DS_U2] = sum_up_u2,                                                                      \
                   [DS_I1] = sum_up_i1,                                                                      \
                   [DS_U1] = sum_up_u1},                                                                     \
        .spread = {[DS_F8] = spread_f8,                                                                      \
                   [DS_F4] = spread_f4,                                                                      \
                   [DS_F2] = spread_f2,                                                                      \
                   [DS_BF16] = spread_bf16,                                                                  \
                   [DS_I8] = spread_i8,                                                                      \
                   [DS_U8] = spread_u8,                                                                      \
                   [DS_I4] = spread_i4,                                                                      \
                   [DS_U4] = spread_u4},                                                                     \
    }
