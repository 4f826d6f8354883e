/* All kernels of one set, which includes its operations first: vectors_avx2.h, for example. */
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
    vd squares[2 * DS_GROUP] = {{0}};
    while (i + DS_GROUP * DS_LANES <= count) {
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_LANES) {
            vd pair[2];
            load_pair(kind, data + i * width, pair);
            for (size_t half = 0; half < 2; half++) {
                vd distance = pair[half] - mean;
                squares[2 * at + half] += distance * distance;
            }
        }
    }
    double sum = sum_of(squares, 2);
    for (; i < count; i++) {
        double distance = ds_element(kind, data + i * width) - mean;
        sum += distance * distance;
    }
    return sum;
}

/* The functions of the set */

/* Name, kind, and the elements that it is summed up as. Kinds with a spread ... */
#define DS_SPREAD_KINDS(X)                                                                                   \
    X(f8, DS_F8, floats)                                                                                     \
    X(f4, DS_F4, floats)                                                                                     \
    X(f2, DS_F2, floats)                                                                                     \
    X(bf16, DS_BF16, floats)                                                                                 \
    X(i8, DS_I8, longs)                                                                                      \
    X(u8, DS_U8, longs)                                                                                      \
    X(i4, DS_I4, integers)                                                                                   \
    X(u4, DS_U4, integers)

/* ... and kinds with exact sums. */
#define DS_EXACT_KINDS(X)                                                                                    \
    X(i2, DS_I2, integers)                                                                                   \
    X(u2, DS_U2, integers)                                                                                   \
    X(i1, DS_I1, bytes)                                                                                      \
    X(u1, DS_U1, bytes)

#define DS_SUM_UP(name, kind, elements)                                                                      \
    static void sum_up_##name(const uint8_t *data, size_t count, struct ds_block *block) {                   \
        sum_up_##elements(kind, data, count, block);                                                         \
    }
#define DS_SPREAD(name, kind, elements)                                                                      \
    static double spread_##name(const uint8_t *data, size_t count, double mean) {                            \
        return spread(kind, data, count, mean);                                                              \
    }
#define DS_SUM_UP_ENTRY(name, kind, elements) [kind] = sum_up_##name,
#define DS_SPREAD_ENTRY(name, kind, elements) [kind] = spread_##name,

DS_SPREAD_KINDS(DS_SUM_UP)
DS_EXACT_KINDS(DS_SUM_UP)
DS_SPREAD_KINDS(DS_SPREAD)

#define DS_KERNEL_TABLE(set)                                                                                 \
    {                                                                                                        \
        .name = set,                                                                                         \
        .sum_up = {DS_SPREAD_KINDS(DS_SUM_UP_ENTRY) DS_EXACT_KINDS(DS_SUM_UP_ENTRY)},                        \
        .spread = {DS_SPREAD_KINDS(DS_SPREAD_ENTRY)},                                                        \
    }
