/* From blocks of pairs to totals, and from totals to a summary. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "pairs.h"

/* As for statistics: if the spread is a smaller share of the squares, it takes a pass over the distances. */
#define SPREAD_SHARE 0x1p-16

static void add(struct ds_running *running, double value) {
    ds_add(&running->sum, &running->error, value);
}

static double value_of(struct ds_running running) {
    return ds_pair(running.sum, running.error);
}

/* Pairs that are not finite */

static void note_mismatch(struct ds_pair_totals *totals, uint64_t index, double x, double y) {
    if (totals->first_mismatch == DS_NO_ELEMENT) {
        totals->first_mismatch = index;
        totals->mismatch_x = x;
        totals->mismatch_y = y;
    }
}

static void count_special(struct ds_pair_totals *totals, uint64_t index, double x, double y) {
    totals->nan_both += isnan(x) && isnan(y);
    totals->nan_mine += isnan(x) && !isnan(y);
    totals->nan_golden += !isnan(x) && isnan(y);
    totals->inf_differs += !isnan(x) && !isnan(y) && x != y;
    if (x != y && !(isnan(x) && isnan(y)))
        note_mismatch(totals, index, x, y);
}

/* Moves the finite pairs to the front and returns how many there are; `places` is where they were. */
static size_t keep_finite(struct ds_comparison *comparison, size_t count, uint16_t *places) {
    double *x = comparison->x, *y = comparison->y;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(x[i]) && isfinite(y[i])) {
            x[kept] = x[i];
            y[kept] = y[i];
            places[kept++] = (uint16_t)i;
        } else if (!comparison->divergence) {
            count_special(&comparison->totals, comparison->totals.count + i, x[i], y[i]);
        }
    }
    return kept;
}

static void pad(double *values, size_t count) {
    for (size_t i = count; i % DS_PAIR_LANES; i++)
        values[i] = 0;
}

static size_t padded(size_t count) {
    return (count + DS_PAIR_LANES - 1) / DS_PAIR_LANES * DS_PAIR_LANES;
}

/* Equality */

static size_t equal_values(const double *x, const double *y, size_t count) {
    size_t equal = 0;
    for (size_t i = 0; i < count; i++)
        equal += x[i] == y[i] && signbit(x[i]) == signbit(y[i]);
    return equal;
}

/* Finite pairs */

static double block_spread(const struct ds_pair_kernels *kernels, const double *x, size_t count, double sum,
                           double squares) {
    double mean = sum / (double)count, spread = squares - mean * sum;
    if (squares == 0 || spread > squares * SPREAD_SHARE)
        return spread;
    return kernels->spread(x, count, mean);
}

/* Adds the spread of a block, and that between its mean and the mean of the earlier blocks. */
static void merge_spread(struct ds_running *total, struct ds_running sum, double before, double block_sum,
                         double count, double spread) {
    add(total, spread);
    if (before > 0) {
        double distance = block_sum / count - value_of(sum) / before;
        add(total, distance * distance * (before / (before + count) * count));
    }
}

static void merge_products(struct ds_comparison *comparison, size_t count,
                           const struct ds_products *products) {
    struct ds_pair_totals *totals = &comparison->totals;
    const struct ds_pair_kernels *kernels = comparison->kernels;
    double before = (double)totals->finite, added = (double)count;
    merge_spread(&totals->x_spread, totals->x, before, products->x, added,
                 block_spread(kernels, comparison->x, count, products->x, products->xx));
    merge_spread(&totals->y_spread, totals->y, before, products->y, added,
                 block_spread(kernels, comparison->y, count, products->y, products->yy));
    add(&totals->x, products->x);
    add(&totals->y, products->y);
    add(&totals->xx, products->xx);
    add(&totals->yy, products->yy);
    add(&totals->xy, products->xy);
    totals->finite += count;
}

static void find_extremes(const double *x, size_t count, double *smallest, double *largest) {
    for (size_t i = 0; i < count; i++) {
        *smallest = x[i] < *smallest ? x[i] : *smallest;
        *largest = x[i] > *largest ? x[i] : *largest;
    }
}

static void note_worst(struct ds_comparison *comparison, const uint16_t *places) {
    struct ds_pair_totals *totals = &comparison->totals;
    size_t at = 0;
    while (fabs(comparison->difference[at]) != totals->max_error)
        at++;
    totals->worst = totals->count + (places ? places[at] : at);
    totals->worst_x = comparison->x[at];
    totals->worst_y = comparison->y[at];
}

static void merge_errors(struct ds_comparison *comparison, size_t count, const uint16_t *places) {
    struct ds_pair_totals *totals = &comparison->totals;
    struct ds_errors errors;
    if (!comparison->wide)
        comparison->kernels->subtract(comparison->x, comparison->y, count, comparison->difference);
    pad(comparison->difference, count);
    comparison->kernels->measure(comparison->x, comparison->y, comparison->difference, padded(count),
                                 comparison->least, &errors);
    add(&totals->errors, errors.errors);
    add(&totals->squares, errors.squares);
    add(&totals->relative, errors.relative);
    totals->max_relative = fmax(totals->max_relative, errors.max_relative);
    totals->max_ulp = fmax(totals->max_ulp, errors.max_ulp);
    totals->beyond_1 += errors.beyond_1;
    totals->beyond_5 += errors.beyond_5;
    if (errors.max_error > totals->max_error) {
        totals->max_error = errors.max_error;
        if (!comparison->wide)
            note_worst(comparison, places);
    }
}

/* The second pass */

static double share(double x, double smallest, double range) {
    return range > 0 ? fmax((x - smallest) / range, DS_FLOAT_EPSILON) : DS_FLOAT_EPSILON;
}

static void merge_divergence(struct ds_comparison *comparison, size_t count) {
    struct ds_pair_totals *totals = &comparison->totals;
    double x_range = totals->x_max - totals->x_min, y_range = totals->y_max - totals->y_min;
    double p_sum = 0, q_sum = 0, divergence = 0;
    for (size_t i = 0; i < count; i++) {
        double p = share(comparison->x[i], totals->x_min, x_range);
        double q = share(comparison->y[i], totals->y_min, y_range);
        p_sum += p;
        q_sum += q;
        divergence += p == q ? 0 : p * log(p / q);
    }
    add(&totals->p, p_sum);
    add(&totals->q, q_sum);
    add(&totals->divergence, divergence);
}

/* Blocks */

static void merge_first_pass(struct ds_comparison *comparison, size_t count, size_t finite,
                             const struct ds_products *products, const uint16_t *places) {
    struct ds_pair_totals *totals = &comparison->totals;
    totals->bit_equal += comparison->equal;
    if (finite > 0) {
        merge_products(comparison, finite, products);
        if (comparison->equal < count)
            merge_errors(comparison, finite, places);
        if (comparison->extremes) {
            find_extremes(comparison->x, finite, &totals->x_min, &totals->x_max);
            find_extremes(comparison->y, finite, &totals->y_min, &totals->y_max);
        }
    }
    totals->count += count;
}

void ds_pairs_merge(struct ds_comparison *comparison) {
    const struct ds_pair_kernels *kernels = comparison->kernels;
    size_t count = comparison->filled, finite = count;
    uint16_t places[DS_COMPARISON_BLOCK], *moved = NULL;
    struct ds_products products;
    if (count == 0)
        return;
    if (!comparison->raw && !comparison->wide)
        comparison->equal = equal_values(comparison->x, comparison->y, count);
    pad(comparison->x, count);
    pad(comparison->y, count);
    kernels->multiply(comparison->x, comparison->y, padded(count), &products);
    if (!isfinite(products.xx + products.yy)) {
        finite = keep_finite(comparison, count, places);
        moved = places;
        pad(comparison->x, finite);
        pad(comparison->y, finite);
        kernels->multiply(comparison->x, comparison->y, padded(finite), &products);
    }
    if (comparison->divergence)
        merge_divergence(comparison, finite);
    else
        merge_first_pass(comparison, count, finite, &products, moved);
    comparison->filled = comparison->equal = 0;
}

/* Summary */

/* The divergence of p / sum(p) from q / sum(q). */
static double divergence_of(const struct ds_pair_totals *totals) {
    double p = value_of(totals->p), q = value_of(totals->q);
    return value_of(totals->divergence) / p + log(q / p);
}

static void summarise_worst(const struct ds_comparison *comparison, const struct ds_pair_totals *totals,
                            struct ds_comparison_summary *summary) {
    bool mismatch = totals->worst == DS_NO_ELEMENT;
    summary->worst = mismatch ? totals->first_mismatch : totals->worst;
    summary->worst_x = mismatch ? totals->mismatch_x : totals->worst_x;
    summary->worst_y = mismatch ? totals->mismatch_y : totals->worst_y;
    if (!summary->is_integer)
        return;
    summary->exact_max = comparison->wide ? totals->exact_max : (unsigned __int128)totals->max_error;
    summary->exact_x = comparison->wide ? totals->exact_x : (__int128)totals->worst_x;
    summary->exact_y = comparison->wide ? totals->exact_y : (__int128)totals->worst_y;
}

static void summarise(const struct ds_comparison *comparison, struct ds_comparison_summary *summary) {
    const struct ds_pair_totals *totals = &comparison->totals;
    const struct ds_side *mine = &comparison->mine, *golden = &comparison->golden;
    double finite = (double)totals->finite;
    *summary = (struct ds_comparison_summary){
        .count = totals->count,
        .finite = totals->finite,
        .nan_both = totals->nan_both,
        .nan_mine = totals->nan_mine,
        .nan_golden = totals->nan_golden,
        .inf_differs = totals->inf_differs,
        .bit_equal = totals->bit_equal,
        .beyond_1 = totals->beyond_1,
        .beyond_5 = totals->beyond_5,
        .xx = value_of(totals->xx),
        .yy = value_of(totals->yy),
        .xy = value_of(totals->xy),
        .errors = value_of(totals->errors),
        .squares = value_of(totals->squares),
        .relative = value_of(totals->relative),
        .max_error = totals->max_error,
        .max_relative = totals->max_relative,
        .has_ulp = !mine->is_integer || !golden->is_integer,
        .is_integer = mine->is_integer && golden->is_integer,
        .x_mean = value_of(totals->x) / finite + 0.0,
        .y_mean = value_of(totals->y) / finite + 0.0,
        .x_std = sqrt(value_of(totals->x_spread) / finite),
        .y_std = sqrt(value_of(totals->y_spread) / finite),
        .has_divergence = comparison->divergence && totals->finite > 0,
    };
    if (summary->has_ulp)
        summary->max_ulp = ldexp(totals->max_ulp, ds_comparison_digits(mine, golden));
    if (summary->has_divergence)
        summary->divergence = divergence_of(totals);
    summarise_worst(comparison, totals, summary);
}

void ds_comparison_result(const struct ds_comparison *comparison, struct ds_comparison_summary *summary) {
    struct ds_comparison whole;
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    memcpy(&whole, comparison, sizeof whole);
    ds_pairs_merge(&whole);
    summarise(&whole, summary);
    fesetenv(&mode);
}
