/* Statistics of one tensor in one pass over its bytes, however they are split.
 *
 * Bytes are gathered into blocks that fit the first cache. A kernel sums up each
 * block, and the blocks are merged. The same bytes give the same results however
 * they are split. Elements with a table of values are only counted by value;
 * everything else follows from the counts.
 *
 * Results do not depend on the thread's floating-point mode. One thread at a time
 * may use an object, and nothing calls into Python. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How elements lie in the bytes: little-endian, packed ones low bits first, single bits high bits first. */
enum ds_kind {
    DS_F8, /* IEEE floats of 8, 4 and 2 bytes */
    DS_F4,
    DS_F2,
    DS_BF16,
    DS_I8, /* integers, by bytes */
    DS_U8,
    DS_I4,
    DS_U4,
    DS_I2,
    DS_U2,
    DS_I1,
    DS_U1,
    DS_SUMMED_KINDS,           /* the kinds above have kernels; those below are counted by value */
    DS_BOOL = DS_SUMMED_KINDS, /* nonzero is 1 */
    DS_BYTE,                   /* one code a byte, values from a table of 256 */
    DS_BITS6,                  /* four codes in three bytes, values from a table of 64 */
    DS_BITS4,                  /* codes of 4, 2 and 1 bits, values from tables of 16, 4 and 2 */
    DS_BITS2,
    DS_BITS1,
    DS_KINDS,
};

#define DS_STATISTICS_BLOCK ((size_t)16 << 10)
#define DS_COUNTER_TABLES 8
#define DS_UNLIMITED UINT64_MAX

/* What is known of the elements so far. `sum`, `squares`, `spread`, `max` and
 * `min` cover only the finite ones. */
struct ds_totals {
    uint64_t count, nan, pos_inf, neg_inf, zero, negative, subnormal, saturated;
    double sum, sum_error; /* the true sum is nearest to sum + sum_error */
    double squares, squares_error;
    double spread, spread_error; /* squared distances from the mean */
    double max, min;
    __int128 exact_sum, exact_max, exact_min; /* integers only */
};

struct ds_kernels;

struct ds_statistics {
    enum ds_kind kind;
    bool histogram;
    const struct ds_kernels *kernels;
    double min_normal;
    uint64_t elements_left;
    struct ds_totals totals;
    size_t block_bytes;
    size_t filled;
    /* The next three are set and copied only if values are counted. */
    double table[256];
    uint64_t counters[DS_COUNTER_TABLES][256]; /* codes, or exponents for the histogram; to be added up */
    uint64_t loose[256];                       /* codes in a byte that is partly padding */
    uint8_t block[DS_STATISTICS_BLOCK];        /* last: the rest is set and copied without it */
};

struct ds_summary {
    bool is_integer; /* max, min and sum are exact, or the nearest doubles */
    bool has_saturated;
    bool has_histogram;
    uint64_t count, finite, nan, pos_inf, neg_inf, zero, negative, subnormal, saturated;
    /* As IEEE and numpy define them: NaN and infinities show. Without elements only
     * sum and l2norm have a meaning: both are 0. */
    double max, min, sum, mean, l2norm, std;
    /* Of the finite elements; without a finite element they have no meaning. */
    double finite_max, finite_min, finite_mean;
    __int128 exact_max, exact_min, exact_sum;
};

/* Finds the kind of that name ("f8" .. "bits1"); false: there is no such kind. */
bool ds_kind_find(const char *name, enum ds_kind *kind);
const char *ds_kind_name(enum ds_kind kind);

/* The number of values in the kind's table; 0: the kind has no table. */
size_t ds_kind_table_size(enum ds_kind kind);

/* Begins a tensor with the kernels in use. `table` is copied; it is NULL for kinds
 * without one. Values of the table below `min_normal` in magnitude are subnormal.
 * Only the first `elements` count (DS_UNLIMITED: all); the rest is padding. */
void ds_statistics_init(struct ds_statistics *statistics, enum ds_kind kind, const double *table,
                        double min_normal, uint64_t elements, bool histogram);

void ds_statistics_update(struct ds_statistics *statistics, const void *bytes, size_t length);

/* Sums up the bytes so far; an incomplete element does not count. Updates may follow.
 * `histogram` is filled if the statistics have one, and may be NULL if they have not.
 * Bin b in 1..254: 2^(b-127) <= |x| < 2^(b-126); bin 254 also holds larger values. Bin 0:
 * zero, subnormal in the kind's own format, or below 2^-126. Bin 255: infinite or NaN. */
void ds_statistics_result(const struct ds_statistics *statistics, struct ds_summary *summary,
                          uint64_t histogram[256]);

/* Uses the kernels of that name ("portable", "avx2", "neon", or "auto" for the
 * fastest) for all statistics that begin from now on. Returns the name of the
 * kernels in use, or NULL if this machine does not have the kernels asked for. */
const char *ds_kernels_use(const char *name);
