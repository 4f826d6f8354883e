/* From bytes to blocks, and from blocks to totals. */
#include "dumpstream/statistics.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "kernels.h"

bool ds_kind_find(const char *name, enum ds_kind *kind) {
    for (int i = 0; i < DS_KINDS; i++) {
        if (strcmp(name, DS_KIND[i].name) == 0) {
            *kind = (enum ds_kind)i;
            return true;
        }
    }
    return false;
}

const char *ds_kind_name(enum ds_kind kind) {
    return DS_KIND[kind].name;
}

size_t ds_kind_table_size(enum ds_kind kind) {
    return kind >= DS_BYTE ? (size_t)1 << DS_KIND[kind].bits : 0;
}

void ds_statistics_init(struct ds_statistics *statistics, enum ds_kind kind, const double *table,
                        double min_normal, uint64_t elements, bool histogram) {
    memset(statistics, 0, offsetof(struct ds_statistics, table));
    statistics->kind = kind;
    statistics->histogram = histogram && !ds_kind_is_integer(kind);
    if (ds_counts_values(statistics))
        memset(statistics->table, 0,
               offsetof(struct ds_statistics, block) - offsetof(struct ds_statistics, table));
    statistics->kernels = ds_kernels_in_use();
    statistics->min_normal = min_normal;
    statistics->elements_left = elements;
    statistics->totals.max = -INFINITY;
    statistics->totals.min = INFINITY;
    /* Whole elements: four elements of 6 bits take three bytes. */
    statistics->block_bytes = kind == DS_BITS6 ? DS_STATISTICS_BLOCK / 3 * 3 : DS_STATISTICS_BLOCK;
    if (table)
        memcpy(statistics->table, table, ds_kind_table_size(kind) * sizeof *table);
    else if (kind == DS_BOOL)
        for (size_t code = 0; code < 256; code++)
            statistics->table[code] = code != 0;
}

/* Blocks */

/* If the spread is a smaller share of the squares, it cannot be computed from them and
 * takes a pass over the distances. If it is larger, the error is at most 1e-11 of it. */
#define SPREAD_SHARE 0x1p-16

/* For integers with squares that are exact, too. */
static double exact_spread(size_t count, const struct ds_block *block) {
    __int128 squares = (int64_t)block->squares;
    return (double)((__int128)count * squares - block->exact_sum * block->exact_sum) / (double)count;
}

static double block_spread(const struct ds_statistics *statistics, const uint8_t *data, size_t count,
                           const struct ds_block *block) {
    if (!statistics->kernels->spread[statistics->kind])
        return exact_spread(count, block);
    double mean = block->sum / (double)count;
    double spread = block->squares - mean * block->sum;
    if (block->squares == 0 || spread > block->squares * SPREAD_SHARE)
        return spread;
    return statistics->kernels->spread[statistics->kind](data, count, mean);
}

/* Adds the spread of a block, and that between its mean and the mean of the earlier blocks. */
static void merge_spread(struct ds_totals *totals, const struct ds_block *block, uint64_t count,
                         double spread) {
    double before = (double)totals->count, added = (double)count;
    ds_add(&totals->spread, &totals->spread_error, spread);
    if (before > 0) {
        double distance = block->sum / added - ds_pair(totals->sum, totals->sum_error) / before;
        double weight = before / (before + added) * added;
        ds_add(&totals->spread, &totals->spread_error, distance * distance * weight);
    }
}

static void merge_exact(struct ds_totals *totals, const struct ds_block *block) {
    bool first = totals->count == 0;
    totals->exact_sum += block->exact_sum;
    if (first || block->exact_max > totals->exact_max)
        totals->exact_max = block->exact_max;
    if (first || block->exact_min < totals->exact_min)
        totals->exact_min = block->exact_min;
}

static void sum_up(struct ds_statistics *statistics, const uint8_t *data, size_t count) {
    struct ds_totals *totals = &statistics->totals;
    struct ds_block block;
    statistics->kernels->sum_up[statistics->kind](data, count, &block);
    totals->nan += block.nan;
    totals->pos_inf += block.pos_inf;
    totals->neg_inf += block.neg_inf;
    totals->zero += block.zero;
    totals->negative += block.negative;
    totals->subnormal += block.subnormal;
    totals->max = fmax(totals->max, block.max);
    totals->min = fmin(totals->min, block.min);
    /* With a NaN or an infinity there is no spread. */
    if (totals->nan + totals->pos_inf + totals->neg_inf == 0)
        merge_spread(totals, &block, count, block_spread(statistics, data, count, &block));
    if (ds_kind_is_integer(statistics->kind))
        merge_exact(totals, &block);
    ds_add(&totals->sum, &totals->sum_error, block.sum);
    ds_add(&totals->squares, &totals->squares_error, block.squares);
    totals->count += count;
}

static void count_packed(struct ds_statistics *statistics, const uint8_t *data, size_t count) {
    size_t bits = DS_KIND[statistics->kind].bits, whole = count * bits / 8;
    ds_count_bytes(statistics->counters, data, whole);
    for (size_t used = 0; used < count * bits % 8; used += bits) {
        size_t shift = bits == 1 ? 7 - used : used;
        statistics->loose[data[whole] >> shift & ((1u << bits) - 1)]++;
    }
}

/* Takes the complete elements in `length` bytes of a block. */
static void take_block(struct ds_statistics *statistics, const uint8_t *data, size_t length) {
    enum ds_kind kind = statistics->kind;
    size_t count = length * 8 / DS_KIND[kind].bits;
    if (count > statistics->elements_left)
        count = (size_t)statistics->elements_left;
    if (count == 0)
        return;
    if (statistics->elements_left != DS_UNLIMITED)
        statistics->elements_left -= count;
    if (kind == DS_BITS6) {
        ds_count_bits6(statistics->counters, data, count);
    } else if (kind >= DS_SUMMED_KINDS) {
        count_packed(statistics, data, count);
    } else {
        sum_up(statistics, data, count);
        if (statistics->histogram)
            ds_count_exponents(statistics->counters, kind, data, count);
    }
}

void ds_statistics_update(struct ds_statistics *statistics, const void *bytes, size_t length) {
    const uint8_t *data = bytes;
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    while (length > 0) {
        size_t space = statistics->block_bytes - statistics->filled;
        size_t taken = length < space ? length : space;
        if (taken == statistics->block_bytes) {
            take_block(statistics, data, taken);
        } else {
            memcpy(statistics->block + statistics->filled, data, taken);
            statistics->filled += taken;
            if (taken == space) {
                take_block(statistics, statistics->block, statistics->block_bytes);
                statistics->filled = 0;
            }
        }
        data += taken;
        length -= taken;
    }
    fesetenv(&mode);
}

void ds_statistics_result(const struct ds_statistics *statistics, struct ds_summary *summary,
                          uint64_t histogram[256]) {
    struct ds_statistics whole;
    fenv_t mode;
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    memcpy(&whole, statistics,
           ds_counts_values(statistics) ? offsetof(struct ds_statistics, block)
                                        : offsetof(struct ds_statistics, table));
    take_block(&whole, statistics->block, statistics->filled);
    ds_statistics_summarise(&whole, summary, histogram);
    fesetenv(&mode);
}
