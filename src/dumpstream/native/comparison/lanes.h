/* All kernels of one set, which includes its operations first: ../statistics/vectors_avx2.h, for example.
 * Sums have four lanes, whatever the size of a vector is, so all sets add the same numbers in the
 * same order. */
#pragma once

#include "pairs.h"

/* Elements as doubles */

#define DS_WIDEN(name, kind, type)                                                                           \
    static void widen_##name(const uint8_t *data, size_t count, double *values) {                            \
        for (size_t i = 0; i < count; i++)                                                                   \
            values[i] = (double)DS_LOAD(type, data + i * sizeof(type));                                      \
    }
#define DS_PLAIN_KINDS(X)                                                                                    \
    X(f8, DS_F8, double)                                                                                     \
    X(f4, DS_F4, float)                                                                                      \
    X(i8, DS_I8, int64_t)                                                                                    \
    X(u8, DS_U8, uint64_t)                                                                                   \
    X(i4, DS_I4, int32_t)                                                                                    \
    X(u4, DS_U4, uint32_t)                                                                                   \
    X(i2, DS_I2, int16_t)                                                                                    \
    X(u2, DS_U2, uint16_t)                                                                                   \
    X(i1, DS_I1, int8_t)                                                                                     \
    X(u1, DS_U1, uint8_t)
DS_PLAIN_KINDS(DS_WIDEN)

static void widen_bf16(const uint8_t *data, size_t count, double *values) {
    for (size_t i = 0; i < count; i++)
        values[i] = ds_bfloat16_value(DS_LOAD(uint16_t, data + 2 * i));
}

static void widen_f2(const uint8_t *data, size_t count, double *values) {
    size_t i = 0;
    for (; i + DS_LANES <= count; i += DS_LANES) {
        vf x = load_f2(data + 2 * i);
        vd pair[2] = {low_f(x), high_f(x)};
        memcpy(values + i, pair, sizeof pair);
    }
    for (; i < count; i++)
        values[i] = ds_half_value(DS_LOAD(uint16_t, data + 2 * i));
}

/* Equality. A block has so few vectors that no lane overflows, which begins again at 0 below 0. */

#define DS_EQUAL(bytes, vector, type)                                                                        \
    static size_t equal_##bytes(const uint8_t *x, const uint8_t *y, size_t count) {                          \
        vector lanes = {0};                                                                                  \
        size_t i = 0, equal = 0, step = DS_VECTOR_BYTES / sizeof(type);                                      \
        for (; i + step <= count; i += step)                                                                 \
            lanes -=                                                                                         \
                (vector)(DS_LOAD(vector, x + i * sizeof(type)) == DS_LOAD(vector, y + i * sizeof(type)));    \
        for (size_t lane = 0; lane < step; lane++)                                                           \
            equal += (type)lanes[lane];                                                                      \
        for (; i < count; i++)                                                                               \
            equal += DS_LOAD(type, x + i * sizeof(type)) == DS_LOAD(type, y + i * sizeof(type));             \
        return equal;                                                                                        \
    }
DS_EQUAL(1, vb, uint8_t)
DS_EQUAL(2, vh, uint16_t)
DS_EQUAL(4, vi, uint32_t)
DS_EQUAL(8, vl, uint64_t)

/* Sums */

_Static_assert(DS_GROUP *DS_DOUBLE_LANES == DS_PAIR_LANES, "a group of vectors has the lanes of a sum");

DS_INLINE double largest_of(const vd *lanes) {
    double largest = 0;
    for (size_t at = 0; at < DS_GROUP; at++)
        for (size_t lane = 0; lane < DS_DOUBLE_LANES; lane++)
            largest = lanes[at][lane] > largest ? lanes[at][lane] : largest;
    return largest;
}

DS_INLINE uint64_t total_of(const vl *lanes) {
    uint64_t total = 0;
    for (size_t at = 0; at < DS_GROUP; at++)
        total += count_of_wide((vu)lanes[at]);
    return total;
}

static void multiply(const double *x, const double *y, size_t count, struct ds_products *products) {
    vd x_sum[DS_GROUP] = {{0}}, y_sum[DS_GROUP] = {{0}};
    vd xx[DS_GROUP] = {{0}}, yy[DS_GROUP] = {{0}}, xy[DS_GROUP] = {{0}};
    for (size_t i = 0; i < count;) {
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES) {
            vd a = DS_LOAD(vd, x + i), b = DS_LOAD(vd, y + i);
            x_sum[at] += a;
            y_sum[at] += b;
            xx[at] += a * a;
            yy[at] += b * b;
            xy[at] += a * b;
        }
    }
    *products = (struct ds_products){.x = sum_of(x_sum, 1),
                                     .y = sum_of(y_sum, 1),
                                     .xx = sum_of(xx, 1),
                                     .yy = sum_of(yy, 1),
                                     .xy = sum_of(xy, 1)};
}

static void subtract(const double *x, const double *y, size_t count, double *difference) {
    for (size_t i = 0; i < count; i++)
        difference[i] = x[i] - y[i];
}

/* Errors */

#define DS_EXPONENT_BITS INT64_C(0x7ff0000000000000)
/* Minus the bits of a power of two, these are the bits of its inverse. */
#define DS_INVERSE_BITS INT64_C(0x7fe0000000000000)

struct error_lanes {
    vd errors[DS_GROUP], squares[DS_GROUP], relative[DS_GROUP];
    vd max_error[DS_GROUP], max_relative[DS_GROUP], max_ulp[DS_GROUP];
    vl beyond_1[DS_GROUP], beyond_5[DS_GROUP];
};

DS_INLINE vd magnitude_of(vd x) {
    return (vd)((vl)x & INT64_MAX);
}

DS_INLINE void take_errors(struct error_lanes *lanes, size_t at, vd x, vd y, vd difference, vd least) {
    vd error = magnitude_of(difference), size = magnitude_of(y);
    vd relative = (vd)((vl)(error / size) & (vl)(size > DS_TINY));
    vd base = (vd)((vl)size | ((vl)(size == 0) & (vl)((vd){0} + DS_FLOAT_EPSILON)));
    vd larger = max_d(magnitude_of(x), size);
    vd power = max_d((vd)((vl)larger & DS_EXPONENT_BITS), least);
    lanes->errors[at] += error;
    lanes->squares[at] += difference * difference;
    lanes->relative[at] += relative;
    lanes->max_error[at] = max_d(lanes->max_error[at], error);
    lanes->max_relative[at] = max_d(lanes->max_relative[at], relative);
    lanes->max_ulp[at] = max_d(lanes->max_ulp[at], error * (vd)(DS_INVERSE_BITS - (vl)power));
    lanes->beyond_1[at] -= (vl)(error > base * 1e-3);
    lanes->beyond_5[at] -= (vl)(error > base * 5e-3);
}

static void measure(const double *x, const double *y, const double *difference, size_t count, double least,
                    struct ds_errors *errors) {
    struct error_lanes lanes = {0};
    const vd smallest = (vd){0} + least;
    for (size_t i = 0; i < count;)
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES)
            take_errors(&lanes, at, DS_LOAD(vd, x + i), DS_LOAD(vd, y + i), DS_LOAD(vd, difference + i),
                        smallest);
    *errors = (struct ds_errors){.errors = sum_of(lanes.errors, 1),
                                 .squares = sum_of(lanes.squares, 1),
                                 .relative = sum_of(lanes.relative, 1),
                                 .max_error = largest_of(lanes.max_error),
                                 .max_relative = largest_of(lanes.max_relative),
                                 .max_ulp = largest_of(lanes.max_ulp),
                                 .beyond_1 = total_of(lanes.beyond_1),
                                 .beyond_5 = total_of(lanes.beyond_5)};
}

static double spread(const double *x, size_t count, double mean) {
    vd squares[DS_GROUP] = {{0}};
    size_t i = 0;
    while (i + DS_PAIR_LANES <= count) {
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES) {
            vd distance = DS_LOAD(vd, x + i) - mean;
            squares[at] += distance * distance;
        }
    }
    double sum = sum_of(squares, 1);
    for (; i < count; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

#define DS_WIDEN_ENTRY(name, kind, type) [kind] = widen_##name,
#define DS_PAIR_KERNEL_TABLE                                                                                 \
    {                                                                                                        \
        .widen = {DS_PLAIN_KINDS(DS_WIDEN_ENTRY)[DS_F2] = widen_f2, [DS_BF16] = widen_bf16},                 \
        .equal = {equal_1, equal_2, equal_4, equal_8},                                                       \
        .multiply = multiply,                                                                                \
        .subtract = subtract,                                                                                \
        .measure = measure,                                                                                  \
        .spread = spread,                                                                                    \
    }
