/* From blocks of pairs to totals, and from totals to a summary. */
#include <math.h>
#include <string.h>

#include "pairs.h"

/* As for statistics: if the spread is a smaller share of the squares, it takes a pass over the distances. */
#define SPREAD_SHARE 0x1p-16
/* Elements of another range than the usual are scaled by 2 to the power of this, or its inverse. */
#define RANGE_SHIFT 600

static void add(struct ds_running *running, double value) {
    ds_add(&running->sum, &running->error, value);
}

static double value_of(struct ds_running running) {
    return ds_pair(running.sum, running.error);
}

/* The first `count` pairs of the block, with the zeros behind them. */
static struct ds_pairs pairs_of(const struct ds_comparison *comparison, size_t count) {
    return (struct ds_pairs){
        .x = comparison->x,
        .y = comparison->y,
        .count = (count + DS_PAIR_LANES - 1) / DS_PAIR_LANES * DS_PAIR_LANES,
        .ahead = {comparison->ahead[0], comparison->ahead[1]},
        .width = {DS_KIND[comparison->mine.kind].bits / 8, DS_KIND[comparison->golden.kind].bits / 8},
    };
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
    if (squares > 0 && spread > squares * SPREAD_SHARE)
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
    totals->finite += count;
}

static void find_extremes(const double *x, size_t count, double *smallest, double *largest) {
    for (size_t i = 0; i < count; i++) {
        *smallest = x[i] < *smallest ? x[i] : *smallest;
        *largest = x[i] > *largest ? x[i] : *largest;
    }
}

static void note_worst(struct ds_comparison *comparison, const struct ds_pairs *pairs,
                       const uint16_t *places) {
    struct ds_pair_totals *totals = &comparison->totals;
    size_t at = comparison->kernels->find_error(pairs, totals->max_error);
    totals->worst = totals->count + (places ? places[at] : at);
    totals->worst_x = comparison->x[at];
    totals->worst_y = comparison->y[at];
}

/* Looks for the peaks of a block only if it may have higher ones than the blocks before. */
static void merge_peaks(struct ds_comparison *comparison, const struct ds_pairs *pairs,
                        const struct ds_errors *errors) {
    struct ds_pair_totals *totals = &comparison->totals;
    const struct ds_pair_kernels *kernels = comparison->kernels;
    const double *difference = comparison->wide ? comparison->difference : NULL;
    double relative = errors->max_ratio;
    bool may_be_higher = errors->tiny || 2 * (1 + 0x1p-50) * relative > totals->max_ulp;
    if (errors->tiny)
        relative = kernels->max_relative(pairs, difference);
    totals->max_relative = fmax(totals->max_relative, relative);
    if (comparison->has_ulp && may_be_higher)
        totals->max_ulp = fmax(totals->max_ulp, kernels->max_ulp(pairs, comparison->least));
}

static void merge_errors(struct ds_comparison *comparison, const struct ds_pairs *pairs,
                         const struct ds_errors *errors, const uint16_t *places) {
    struct ds_pair_totals *totals = &comparison->totals;
    add(&totals->errors, errors->errors);
    add(&totals->relative, errors->relative);
    merge_peaks(comparison, pairs, errors);
    totals->beyond_1 += errors->beyond_1;
    totals->beyond_5 += errors->beyond_5;
    if (errors->max_error > totals->max_error) {
        totals->max_error = errors->max_error;
        if (!comparison->wide)
            note_worst(comparison, pairs, places);
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

static void multiply(struct ds_comparison *comparison, size_t count, struct ds_products *products) {
    struct ds_pairs pairs = pairs_of(comparison, count);
    for (size_t i = count; i < pairs.count; i++)
        comparison->x[i] = comparison->y[i] = comparison->difference[i] = 0;
    comparison->kernels->multiply[comparison->narrow](&pairs, products);
}

static void measure(const struct ds_comparison *comparison, const struct ds_pairs *pairs,
                    struct ds_errors *errors) {
    if (comparison->wide)
        comparison->kernels->measure_given(pairs, comparison->difference, errors);
    else
        comparison->kernels->measure(pairs, errors);
}

/* The range of the squares of a block: elsewhere, sums of 2^24 blocks are neither lost nor infinite. */
static enum ds_range range_of(const struct ds_comparison *comparison, const struct ds_products *products) {
    double larger = fmax(products->xx, products->yy);
    if (comparison->narrow || comparison->wide || (larger < 0x1p980 && larger > 0x1p-850))
        return DS_USUAL;
    return larger > 1 ? DS_LARGE : DS_SMALL;
}

/* Sums up the block once more, scaled; it is of no use afterwards. */
static void scale(struct ds_comparison *comparison, size_t count, bool equal, enum ds_range range,
                  struct ds_products *products, struct ds_errors *errors) {
    struct ds_pairs pairs = pairs_of(comparison, count);
    for (size_t i = 0; i < pairs.count; i++) {
        comparison->x[i] = ldexp(comparison->x[i], range == DS_LARGE ? -RANGE_SHIFT : RANGE_SHIFT);
        comparison->y[i] = ldexp(comparison->y[i], range == DS_LARGE ? -RANGE_SHIFT : RANGE_SHIFT);
    }
    comparison->kernels->multiply[0](&pairs, products);
    if (equal)
        return;
    comparison->kernels->measure(&pairs, errors);
    if (range == DS_LARGE) /* the powers of the largest doubles have no inverse */
        comparison->totals.max_ulp =
            fmax(comparison->totals.max_ulp, comparison->kernels->max_ulp(&pairs, 0x1p-1022));
}

/* Adds the first `count` pairs, all finite. Equal ones have no errors. */
static void merge_finite(struct ds_comparison *comparison, size_t count, bool equal,
                         struct ds_products *products, const uint16_t *places) {
    struct ds_pair_totals *totals = &comparison->totals;
    struct ds_pairs pairs = pairs_of(comparison, count);
    struct ds_errors errors = {0};
    merge_products(comparison, count, products);
    if (!equal) {
        measure(comparison, &pairs, &errors);
        merge_errors(comparison, &pairs, &errors, places);
    }
    if (comparison->extremes) {
        find_extremes(comparison->x, count, &totals->x_min, &totals->x_max);
        find_extremes(comparison->y, count, &totals->y_min, &totals->y_max);
    }
    enum ds_range range = range_of(comparison, products);
    if (range != DS_USUAL)
        scale(comparison, count, equal, range, products, &errors);
    struct ds_second_moments *moments = &totals->moments[range];
    add(&moments->xx, products->xx);
    add(&moments->yy, products->yy);
    add(&moments->xy, products->xy);
    add(&moments->squares, errors.squares);
}

/* Elements of different kinds are equal if their values are. */
static size_t count_equal(const struct ds_comparison *comparison, size_t count, bool finite) {
    if (comparison->raw || comparison->wide || comparison->rounded)
        return comparison->equal;
    if (!finite)
        return equal_values(comparison->x, comparison->y, count);
    return comparison->kernels->equal[3]((const uint8_t *)comparison->x, (const uint8_t *)comparison->y,
                                         count);
}

void ds_pairs_merge(struct ds_comparison *comparison) {
    size_t count = comparison->filled, finite = count;
    uint16_t places[DS_COMPARISON_BLOCK], *moved = NULL;
    struct ds_products products;
    if (count == 0)
        return;
    multiply(comparison, count, &products);
    bool all_finite = isfinite(products.xx + products.yy);
    size_t equal = count_equal(comparison, count, all_finite);
    if (!all_finite) {
        finite = keep_finite(comparison, count, places);
        moved = places;
        multiply(comparison, finite, &products);
    }
    if (comparison->divergence) {
        merge_divergence(comparison, finite);
    } else {
        if (finite > 0)
            merge_finite(comparison, finite, equal == count, &products, moved);
        comparison->totals.bit_equal += equal;
        comparison->totals.count += count;
    }
    comparison->filled = comparison->equal = 0;
}

/* Summary */

/* A sum in `range`, and what the range below adds to it. */
#define MOMENT(totals, range, name)                                                                          \
    (value_of((totals)->moments[range].name) +                                                               \
     (range > DS_SMALL ? ldexp(value_of((totals)->moments[range - 1].name), -2 * RANGE_SHIFT) : 0))

static void summarise_moments(const struct ds_pair_totals *totals, struct ds_comparison_summary *summary) {
    int range = DS_LARGE, own = DS_LARGE;
    while (range > DS_SMALL && totals->moments[range].xx.sum == 0 && totals->moments[range].yy.sum == 0)
        range--;
    summary->xx = MOMENT(totals, range, xx);
    summary->yy = MOMENT(totals, range, yy);
    summary->xy = MOMENT(totals, range, xy);
    summary->squares = MOMENT(totals, range, squares);
    while (own > DS_SMALL && totals->moments[own].squares.sum == 0)
        own--;
    double mean = MOMENT(totals, own, squares) / (double)totals->finite;
    summary->rmse = ldexp(sqrt(mean), (own - DS_USUAL) * RANGE_SHIFT);
}

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
        .errors = value_of(totals->errors),
        .relative = value_of(totals->relative),
        .max_error = totals->max_error,
        .max_relative = totals->max_relative,
        .has_ulp = comparison->has_ulp,
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
    summarise_moments(totals, summary);
    summarise_worst(comparison, totals, summary);
}

void ds_pairs_summarise(struct ds_comparison *comparison, struct ds_comparison_summary *summary) {
    ds_pairs_merge(comparison);
    summarise(comparison, summary);
}
