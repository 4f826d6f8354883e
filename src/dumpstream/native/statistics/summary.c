/* From totals and counters to the summary. */
#include <math.h>
#include <string.h>

#include "kernels.h"

static void add_counters(const struct ds_statistics *statistics, uint64_t sums[256]) {
    for (size_t i = 0; i < 256; i++) {
        sums[i] = 0;
        for (size_t table = 0; table < DS_COUNTER_TABLES; table++)
            sums[i] += statistics->counters[table][i];
    }
}

/* Codes */

/* Computes the counts of codes from the counts of the bytes that they are packed in. */
static void count_codes(const struct ds_statistics *statistics, uint64_t codes[256]) {
    /* Codes of 6 bits were counted one by one. */
    size_t bits = statistics->kind == DS_BITS6 ? 8 : DS_KIND[statistics->kind].bits;
    uint64_t bytes[256];
    add_counters(statistics, bytes);
    for (size_t i = 0; i < 256; i++)
        codes[i] = statistics->loose[i];
    for (size_t byte = 0; byte < 256; byte++)
        for (size_t used = 0; used < 8; used += bits)
            codes[byte >> used & (((size_t)1 << bits) - 1)] += bytes[byte];
}

static double largest_magnitude(const struct ds_statistics *statistics) {
    double largest = 0;
    for (size_t code = 0; code < ds_kind_table_size(statistics->kind); code++)
        if (isfinite(statistics->table[code]))
            largest = fmax(largest, fabs(statistics->table[code]));
    return largest;
}

static void total_finite(struct ds_totals *totals, double value, uint64_t count, double min_normal) {
    double magnitude = fabs(value);
    totals->zero += value == 0 ? count : 0;
    totals->subnormal += value != 0 && magnitude < min_normal ? count : 0;
    totals->max = fmax(totals->max, value);
    totals->min = fmin(totals->min, value);
    ds_add(&totals->sum, &totals->sum_error, value * (double)count);
    ds_add(&totals->squares, &totals->squares_error, value * value * (double)count);
}

static void total_codes(const struct ds_statistics *statistics, const uint64_t codes[256],
                        struct ds_totals *totals) {
    double largest = largest_magnitude(statistics);
    *totals = (struct ds_totals){.max = -INFINITY, .min = INFINITY};
    for (size_t code = 0; code < 256; code++) {
        double value = statistics->table[code];
        uint64_t count = codes[code];
        if (count == 0)
            continue;
        totals->count += count;
        totals->negative += value < 0 ? count : 0;
        totals->saturated += fabs(value) == largest ? count : 0;
        if (isnan(value))
            totals->nan += count;
        else if (isinf(value))
            *(value > 0 ? &totals->pos_inf : &totals->neg_inf) += count;
        else
            total_finite(totals, value, count, statistics->min_normal);
    }
    double mean = ds_pair(totals->sum, totals->sum_error) / (double)totals->count;
    for (size_t code = 0; code < 256; code++) {
        double distance = statistics->table[code] - mean;
        if (codes[code])
            ds_add(&totals->spread, &totals->spread_error, distance * distance * (double)codes[code]);
    }
}

static void total_exact(const struct ds_statistics *statistics, const uint64_t codes[256],
                        struct ds_totals *totals) {
    totals->exact_max = totals->count ? (int64_t)totals->max : 0;
    totals->exact_min = totals->count ? (int64_t)totals->min : 0;
    for (size_t code = 0; code < 256; code++)
        totals->exact_sum += (__int128)codes[code] * (int64_t)statistics->table[code];
}

/* Moves the exponents of 2-byte floats, 0 to 31, to the bias of 4-byte floats. */
static void rebias_half(uint64_t bins[256]) {
    bins[255] = bins[31];
    bins[31] = 0;
    for (size_t field = 30; field > 0; field--) {
        bins[field - 15 + 127] = bins[field];
        bins[field] = 0;
    }
}

static size_t value_bin(double value, double min_normal) {
    double magnitude = fabs(value);
    if (!isfinite(value))
        return 255;
    if (magnitude < min_normal || magnitude < 0x1p-126)
        return 0;
    return magnitude < 0x1p127 ? (size_t)(ilogb(magnitude) + 127) : 254;
}

/* Summary */

/* The sum or mean of all elements, given that of the finite ones. */
static double with_infinities(const struct ds_totals *totals, double finite) {
    if (totals->nan || (totals->pos_inf && totals->neg_inf))
        return NAN;
    return totals->pos_inf ? INFINITY : totals->neg_inf ? -INFINITY : finite;
}

static void summarise_finite(const struct ds_totals *totals, double sum, struct ds_summary *summary) {
    summary->finite = totals->count - totals->nan - totals->pos_inf - totals->neg_inf;
    /* Adding 0 drops the sign of a zero. */
    summary->finite_max = totals->max + 0.0;
    summary->finite_min = totals->min + 0.0;
    summary->finite_mean = sum / (double)summary->finite + 0.0;
}

static void summarise_all(const struct ds_totals *totals, double sum, struct ds_summary *summary) {
    double squares = ds_pair(totals->squares, totals->squares_error);
    double spread = ds_pair(totals->spread, totals->spread_error);
    bool infinite = totals->pos_inf || totals->neg_inf;
    summary->sum = with_infinities(totals, sum) + 0.0;
    summary->mean = with_infinities(totals, summary->finite_mean);
    summary->max = totals->nan ? NAN : totals->pos_inf ? INFINITY : summary->finite_max;
    summary->min = totals->nan ? NAN : totals->neg_inf ? -INFINITY : summary->finite_min;
    summary->l2norm = totals->nan ? NAN : infinite ? INFINITY : sqrt(squares);
    summary->std = totals->nan || infinite ? NAN : sqrt(spread / (double)totals->count);
}

static void summarise_exact(const struct ds_totals *totals, struct ds_summary *summary) {
    summary->exact_max = totals->exact_max;
    summary->exact_min = totals->exact_min;
    summary->exact_sum = totals->exact_sum;
    summary->max = summary->finite_max = (double)totals->exact_max;
    summary->min = summary->finite_min = (double)totals->exact_min;
}

/* Fills the bins from the counts of codes. */
static void bin_codes(const struct ds_statistics *statistics, const uint64_t codes[256], uint64_t bins[256]) {
    memset(bins, 0, 256 * sizeof *bins);
    for (size_t code = 0; code < 256; code++)
        bins[value_bin(statistics->table[code], statistics->min_normal)] += codes[code];
}

void ds_statistics_summarise(const struct ds_statistics *statistics, struct ds_summary *summary,
                             uint64_t histogram[256]) {
    struct ds_totals totals = statistics->totals;
    bool is_integer = ds_kind_is_integer(statistics->kind), coded = statistics->kind >= DS_SUMMED_KINDS;
    *summary = (struct ds_summary){.is_integer = is_integer,
                                   .has_saturated = ds_kind_table_size(statistics->kind) > 0,
                                   .has_histogram = statistics->histogram};
    if (coded) {
        uint64_t codes[256];
        count_codes(statistics, codes);
        total_codes(statistics, codes, &totals);
        if (is_integer)
            total_exact(statistics, codes, &totals);
        if (statistics->histogram)
            bin_codes(statistics, codes, histogram);
    } else if (statistics->histogram) {
        add_counters(statistics, histogram);
        if (statistics->kind == DS_F2)
            rebias_half(histogram);
    }
    double sum = is_integer ? (double)totals.exact_sum : ds_pair(totals.sum, totals.sum_error);
    summary->count = totals.count;
    summary->nan = totals.nan;
    summary->pos_inf = totals.pos_inf;
    summary->neg_inf = totals.neg_inf;
    summary->zero = totals.zero;
    summary->negative = totals.negative;
    summary->subnormal = totals.subnormal;
    summary->saturated = totals.saturated;
    summarise_finite(&totals, sum, summary);
    summarise_all(&totals, sum, summary);
    if (is_integer)
        summarise_exact(&totals, summary);
}
