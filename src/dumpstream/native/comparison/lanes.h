/* All kernels of one set, which includes its operations first: ../statistics/vectors_avx2.h, for example.
 * Sums have four or eight lanes, whatever the size of a vector is, so all sets add the same numbers
 * in the same order. */
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

DS_INLINE void widen_halves(enum ds_kind kind, const uint8_t *data, size_t count, double *values) {
    size_t i = 0;
    for (; i + DS_LANES <= count; i += DS_LANES) {
        vf x = kind == DS_F2 ? load_f2(data + 2 * i) : (vf)(load_u2(data + 2 * i) << 16);
        vd low = low_f(x), high = high_f(x);
        memcpy(values + i, &low, sizeof low);
        memcpy(values + i + DS_DOUBLE_LANES, &high, sizeof high);
    }
    for (; i < count; i++)
        values[i] = ds_element(kind, data + 2 * i);
}

static void widen_f2(const uint8_t *data, size_t count, double *values) {
    widen_halves(DS_F2, data, count, values);
}

static void widen_bf16(const uint8_t *data, size_t count, double *values) {
    widen_halves(DS_BF16, data, count, values);
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

_Static_assert(2 * DS_GROUP * DS_DOUBLE_LANES == DS_PAIR_LANES,
               "kernels take two groups of vectors at a time");

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

/* Two vectors for each lane of a group: one addition does not wait for the one before. */
struct product_lanes {
    vd x[2 * DS_GROUP], y[2 * DS_GROUP], xx[2 * DS_GROUP], yy[2 * DS_GROUP], xy[2 * DS_GROUP];
};

/* `narrow` elements have products that a double holds. */
DS_INLINE void take_products(struct product_lanes *lanes, size_t at, vd x, vd y, bool narrow) {
    lanes->x[at] += x;
    lanes->y[at] += y;
    lanes->xx[at] = narrow ? add_product_f(lanes->xx[at], x, x) : lanes->xx[at] + x * x;
    lanes->yy[at] = narrow ? add_product_f(lanes->yy[at], y, y) : lanes->yy[at] + y * y;
    lanes->xy[at] = narrow ? add_product_f(lanes->xy[at], x, y) : lanes->xy[at] + x * y;
}

DS_INLINE void multiply(const struct ds_pairs *pairs, struct ds_products *products, bool narrow) {
    struct product_lanes lanes = {0};
    for (size_t i = 0; i < pairs->count;) {
        __builtin_prefetch((const void *)(pairs->ahead[0] + i * pairs->width[0]));
        for (size_t at = 0; at < 2 * DS_GROUP; at++, i += DS_DOUBLE_LANES)
            take_products(&lanes, at, DS_LOAD(vd, pairs->x + i), DS_LOAD(vd, pairs->y + i), narrow);
    }
    *products = (struct ds_products){.x = sum_of(lanes.x, 2),
                                     .y = sum_of(lanes.y, 2),
                                     .xx = sum_of(lanes.xx, 2),
                                     .yy = sum_of(lanes.yy, 2),
                                     .xy = sum_of(lanes.xy, 2)};
}

/* Errors */

struct error_lanes {
    vd errors[DS_GROUP], squares[DS_GROUP], relative[DS_GROUP], max_error[DS_GROUP], max_ratio[DS_GROUP];
    vl beyond_1[DS_GROUP], beyond_5[DS_GROUP], tiny[DS_GROUP];
};

DS_INLINE vd magnitude_of(vd x) {
    return (vd)((vl)x & INT64_MAX);
}

/* Doubles that are not negative are in the order of their bits, which more units can compare. */
DS_INLINE vl is_above(vd x, double limit) {
    return (vl)x > (vl)((vd){0} + limit);
}

DS_INLINE void take_errors(struct error_lanes *lanes, size_t at, vd y, vd difference) {
    vd error = magnitude_of(difference), size = magnitude_of(y);
    vd ratio = error / max_d(size, (vd){0} + DS_TINY);
    vl counts = is_above(size, DS_TINY);
    lanes->errors[at] += error;
    lanes->squares[at] += difference * difference;
    lanes->relative[at] += (vd)((vl)ratio & counts);
    lanes->tiny[at] |= (vl)ratio & ~counts;
    lanes->max_error[at] = max_d(error, lanes->max_error[at]);
    lanes->max_ratio[at] = max_d(ratio, lanes->max_ratio[at]);
    lanes->beyond_1[at] -= is_above(ratio, 1e-3);
    lanes->beyond_5[at] -= is_above(ratio, 5e-3);
}

/* If `difference` is NULL, the differences are those of the doubles. */
static void measure(const struct ds_pairs *pairs, const double *difference, struct ds_errors *errors) {
    struct error_lanes lanes = {0};
    for (size_t i = 0; i < pairs->count;) {
        __builtin_prefetch((const void *)(pairs->ahead[1] + i * pairs->width[1]));
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES) {
            vd y = DS_LOAD(vd, pairs->y + i);
            vd apart = difference ? DS_LOAD(vd, difference + i) : DS_LOAD(vd, pairs->x + i) - y;
            take_errors(&lanes, at, y, apart);
        }
    }
    *errors = (struct ds_errors){.errors = sum_of(lanes.errors, 1),
                                 .squares = sum_of(lanes.squares, 1),
                                 .relative = sum_of(lanes.relative, 1),
                                 .max_error = largest_of(lanes.max_error),
                                 .max_ratio = largest_of(lanes.max_ratio),
                                 .beyond_1 = total_of(lanes.beyond_1),
                                 .beyond_5 = total_of(lanes.beyond_5)};
    for (size_t at = 0; at < DS_GROUP; at++)
        for (size_t lane = 0; lane < DS_DOUBLE_LANES; lane++)
            errors->tiny |= lanes.tiny[at][lane] != 0;
}

/* Peaks */

#define DS_EXPONENT_BITS INT64_C(0x7ff0000000000000)
/* Minus the bits of a power of two, these are the bits of its inverse. */
#define DS_INVERSE_BITS INT64_C(0x7fe0000000000000)

static double max_ulp(const struct ds_pairs *pairs, double least) {
    vd max[DS_GROUP] = {{0}};
    const vd smallest = (vd){0} + least;
    for (size_t i = 0; i < pairs->count;) {
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES) {
            vd x = DS_LOAD(vd, pairs->x + i), y = DS_LOAD(vd, pairs->y + i);
            vd larger = max_d(magnitude_of(x), magnitude_of(y));
            vd power = max_d((vd)((vl)larger & DS_EXPONENT_BITS), smallest);
            max[at] = max_d(magnitude_of(x - y) * (vd)(DS_INVERSE_BITS - (vl)power), max[at]);
        }
    }
    return largest_of(max);
}

/* Vectors between two looks at what was found. */
#define DS_FIND_VECTORS (32 / DS_DOUBLE_LANES)

static size_t find_error(const struct ds_pairs *pairs, double error) {
    const vd wanted = (vd){0} + error;
    size_t start = 0, step = DS_FIND_VECTORS * DS_DOUBLE_LANES;
    for (int64_t any = 0; start + step <= pairs->count; start += step) {
        vl found = {0};
        for (size_t i = start; i < start + step; i += DS_DOUBLE_LANES)
            found |= magnitude_of(DS_LOAD(vd, pairs->x + i) - DS_LOAD(vd, pairs->y + i)) == wanted;
        for (size_t lane = 0; lane < DS_DOUBLE_LANES; lane++)
            any |= found[lane];
        if (any)
            break;
    }
    while (fabs(pairs->x[start] - pairs->y[start]) != error)
        start++;
    return start;
}

static double max_relative(const struct ds_pairs *pairs, const double *difference) {
    vd max[DS_GROUP] = {{0}};
    for (size_t i = 0; i < pairs->count;) {
        for (size_t at = 0; at < DS_GROUP; at++, i += DS_DOUBLE_LANES) {
            vd y = DS_LOAD(vd, pairs->y + i), size = magnitude_of(y);
            vd apart = difference ? DS_LOAD(vd, difference + i) : DS_LOAD(vd, pairs->x + i) - y;
            max[at] = max_d((vd)((vl)(magnitude_of(apart) / size) & is_above(size, DS_TINY)), max[at]);
        }
    }
    return largest_of(max);
}

static double spread(const double *x, size_t count, double mean) {
    vd squares[DS_GROUP] = {{0}};
    size_t i = 0;
    while (i + DS_GROUP * DS_DOUBLE_LANES <= count) {
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

/* The functions of the set */

static void multiply_narrow(const struct ds_pairs *pairs, struct ds_products *products) {
    multiply(pairs, products, true);
}

static void multiply_any(const struct ds_pairs *pairs, struct ds_products *products) {
    multiply(pairs, products, false);
}

static void measure_doubles(const struct ds_pairs *pairs, struct ds_errors *errors) {
    measure(pairs, NULL, errors);
}

#define DS_WIDEN_ENTRY(name, kind, type) [kind] = widen_##name,
#define DS_PAIR_KERNEL_TABLE                                                                                 \
    {                                                                                                        \
        .widen = {DS_PLAIN_KINDS(DS_WIDEN_ENTRY)[DS_F2] = widen_f2, [DS_BF16] = widen_bf16},                 \
        .equal = {equal_1, equal_2, equal_4, equal_8},                                                       \
        .multiply = {multiply_any, multiply_narrow},                                                         \
        .measure = measure_doubles,                                                                          \
        .measure_given = measure,                                                                            \
        .max_ulp = max_ulp,                                                                                  \
        .find_error = find_error,                                                                            \
        .max_relative = max_relative,                                                                        \
        .spread = spread,                                                                                    \
    }
