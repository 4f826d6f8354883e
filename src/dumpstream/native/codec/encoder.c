#include <stdlib.h>

#include "kernels.h"
#include "packing.h"
#include "sample.h"
#include "zstd.h"

/* Of elements: so many bytes and what becomes of them stay in the cache. */
#define ELEMENTS_BLOCK (256u << 10)
/* A tensor with fewer is not worth a block of its own. */
#define LEAST_TENSOR 1024u
/* Fewer bytes do not become fewer. */
#define LEAST_COMPRESSED 64u
/* Bytes that come again fewer times are compressed otherwise. */
#define LEAST_REPEATED 32u
/* Of floats, whole rows are looked for if they are not longer than this, and come so often in a block. */
#define LONGEST_ROW (128u << 10)
#define LEAST_ROWS 4u
/* What is tried before a block is compressed, from several places of it. */
#define TRIED (16u << 10)
#define PLACES 4u
/* The fastest way to nothing but Huffman codes: a level at which hardly a match is looked for. */
#define NO_MATCHES (-100)

struct ds_encoder {
    enum ds_effort effort;
    void *matching; /* compressors of libzstd, */
    void *quick;    /* of which this one codes literals only */
    uint8_t kept[ELEMENTS_BLOCK + 16];
    uint8_t high[ELEMENTS_BLOCK / 2];
    uint8_t coded[ELEMENTS_BLOCK]; /* a plane has half as many bytes, or fewer */
    uint8_t tried[TRIED];
    uint8_t outcome[2 * TRIED];
};

struct ds_encoder *ds_encoder_new(enum ds_effort effort, int level) {
    struct ds_encoder *encoder = malloc(sizeof *encoder);
    if (!encoder)
        return NULL;
    encoder->effort = effort;
    encoder->matching = effort == DS_KEEP ? NULL : ds_zstd_compressor(level, false);
    encoder->quick = effort == DS_KEEP ? NULL : ds_zstd_compressor(NO_MATCHES, true);
    return encoder;
}

void ds_encoder_free(struct ds_encoder *encoder) {
    if (!encoder)
        return;
    ds_zstd_free_compressor(encoder->matching);
    ds_zstd_free_compressor(encoder->quick);
    free(encoder);
}

size_t ds_encoded_bound(size_t length) {
    return length + length / 8 + (64u << 10);
}

/* Bytes that are encoded, and where they go. */
struct job {
    struct ds_encoder *encoder;
    const uint8_t *bytes;
    size_t length;
    enum ds_element element;
    uint8_t *out; /* has room for more than `length` */
};

static size_t room(const struct job *job) {
    return job->length + job->length / 16 + 1024;
}

/* Blocks. Each function returns the length of the payload, or 0 if there is no point. */

static size_t encode_zstd(const struct job *job, void *compressor) {
    return ds_zstd_compress(compressor, job->bytes, job->length, job->out, room(job));
}

/* Writes the elements without zeros to `kept`, and how many they are and the bitmap to `out`. */
static size_t drop_zeros(const struct job *job, size_t *count) {
    const unsigned width = ds_widths[job->element];
    size_t elements = job->length / width;
    *count = ds_codec_kernels()->drop_zeros(job->bytes, elements, width, job->out + 4, job->encoder->kept);
    ds_store_32(job->out, (uint32_t)*count);
    return 4 + ds_bitmap_bytes(elements);
}

static size_t encode_packed(const struct job *job, unsigned flags) {
    const uint8_t *values = job->bytes;
    size_t count = job->length / ds_widths[job->element], written = 0;
    if (flags & DS_WITHOUT_ZEROS) {
        written = drop_zeros(job, &count);
        values = job->encoder->kept;
    }
    if (job->element != DS_SINGLE)
        return written + ds_pack_values(job->element, values, count, job->out + written);
    ds_codec_kernels()->halve(values, count, job->out + written, job->encoder->high);
    written += 2 * count;
    return written + ds_pack_values(DS_BFLOAT, job->encoder->high, count, job->out + written);
}

/* Writes the frame of a plane to `coded`. Those that have one byte again and again, as the upper bytes of
 * small integers and of their differences, take no search for it. */
static size_t code_plane(struct ds_encoder *encoder, const uint8_t *plane, size_t count) {
    size_t stored = ds_zstd_repeat(plane, count, encoder->coded);
    return stored ? stored
                  : ds_zstd_compress(encoder->quick, plane, count, encoder->coded, sizeof encoder->coded);
}

/* Planes without a bit in `places` are kept as they are. */
static size_t encode_planes(const struct job *job, unsigned flags, unsigned places) {
    struct ds_encoder *const encoder = job->encoder;
    const unsigned width = ds_widths[job->element];
    const uint8_t *elements = job->bytes;
    size_t count = job->length / width, written = 0;
    if (flags & DS_WITHOUT_ZEROS) {
        written = drop_zeros(job, &count);
        elements = job->encoder->kept;
    }
    /* In place: a plane that is kept as it is, behind others that are, is there already. */
    uint8_t *const planes = job->out + written + 4;
    const size_t step = count + 4;
    ds_codec_kernels()->split(elements, count, width, flags, step, planes);
    for (unsigned p = 0; p < width; p++) {
        const uint8_t *plane = planes + p * step;
        uint8_t *out = job->out + written + 4;
        size_t stored = 0;
        if (places >> p & 1)
            stored = code_plane(encoder, plane, count);
        if (stored && stored < count) {
            memcpy(out, encoder->coded, stored);
        } else {
            stored = count;
            memmove(out, plane, count);
        }
        ds_store_32(out - 4, (uint32_t)stored);
        written += 4 + stored;
    }
    return written;
}

/* Choices */

struct choice {
    enum ds_block_kind kind;
    unsigned flags;
    void *compressor; /* for DS_BLOCK_ZSTD */
    unsigned number;  /* for DS_BLOCK_PLANES the places to code, for DS_BLOCK_REPEATED the period */
};

#define ALL_PLACES 255u

static struct choice choose_repetitive(const struct job *job) {
    size_t period = ds_period(job->bytes, job->length, job->length / LEAST_REPEATED);
    if (period)
        return (struct choice){DS_BLOCK_REPEATED, 0, NULL, (unsigned)period};
    return (struct choice){job->encoder->matching ? DS_BLOCK_ZSTD : DS_BLOCK_RAW, 0, job->encoder->matching,
                           0};
}

/* Planes take twice as long as packing. Returns how much smaller they must be. */
static uint64_t margin(enum ds_effort effort, uint64_t packed, uint64_t raw) {
    if (effort == DS_FAST)
        return raw / 4;
    if (effort == DS_AUTO)
        return packed < raw / 8 * 7 ? raw / 16 : raw / 32;
    return 0;
}

static struct choice choose_float(const struct job *job) {
    const struct ds_encoder *encoder = job->encoder;
    const unsigned width = ds_widths[job->element];
    const bool has_planes = encoder->quick, can_pack = job->element != DS_DOUBLE;
    struct ds_sample sample;
    unsigned places = 0;
    ds_sample_take(job->element, job->bytes, job->length / width, &sample);
    if (sample.zeros > sample.taken / 16 * 15 || ds_is_repetitive(job->bytes, job->length))
        return choose_repetitive(job);
    const bool drop = sample.zeros > sample.taken / 8;
    const uint64_t raw = (uint64_t)sample.taken * 8 * width * DS_COST;
    const uint64_t packed = can_pack ? ds_packed_cost(job->element, &sample, drop) : raw;
    const uint64_t planes = has_planes ? ds_planes_cost(job->element, &sample, drop, &places) : raw;
    const uint64_t worth = raw / 64 * 63;
    const unsigned flags = drop ? DS_WITHOUT_ZEROS : 0;
    if (planes < worth && (packed >= worth || planes + margin(encoder->effort, packed, raw) <= packed))
        return (struct choice){DS_BLOCK_PLANES, flags | DS_ROTATED, NULL, places};
    if (packed < worth)
        return (struct choice){DS_BLOCK_PACKED, flags, NULL, 0};
    return (struct choice){DS_BLOCK_RAW, 0, NULL, 0};
}

/* Whether the bytes begin with a 0 that is repeated to the end. */
static bool is_zero(const uint8_t *bytes, size_t length) {
    return !*bytes && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* Copies bytes from several places of the block, each on its grid, to be tried; returns a job for them. */
static struct job take_some(const struct job *job) {
    const size_t piece = TRIED / PLACES, step = (job->length - piece) / (PLACES - 1);
    for (unsigned place = 0; place < PLACES; place++)
        memcpy(job->encoder->tried + place * piece, job->bytes + place * step / 8 * 8, piece);
    return (struct job){job->encoder, job->encoder->tried, TRIED, job->element, job->encoder->outcome};
}

static struct choice choose_bytes(const struct job *job) {
    struct ds_encoder *encoder = job->encoder;
    const bool is_small = job->length < 2 * TRIED;
    if (job->length < LEAST_COMPRESSED)
        return (struct choice){DS_BLOCK_RAW, 0, NULL, 0};
    if (is_zero(job->bytes, job->length) || ds_is_repetitive(job->bytes, job->length)) {
        struct choice repeated = choose_repetitive(job);
        if (repeated.kind == DS_BLOCK_REPEATED || job->element == DS_BYTES)
            return repeated;
    }
    if (!encoder->matching)
        return (struct choice){DS_BLOCK_RAW, 0, NULL, 0};
    if (is_small && job->element == DS_BYTES)
        return (struct choice){DS_BLOCK_ZSTD, 0, encoder->matching, 0};
    struct job some = is_small ? *job : take_some(job);
    struct choice best = {DS_BLOCK_RAW, 0, NULL, 0};
    size_t least = some.length - some.length / 64;
    if (is_small)
        some.out = job->out;
#define TRY(size, ...)                                                                                       \
    do {                                                                                                     \
        size_t size_ = (size);                                                                               \
        if (size_ && size_ < least) {                                                                        \
            least = size_;                                                                                   \
            best = (struct choice){__VA_ARGS__};                                                             \
        }                                                                                                    \
    } while (0)
    /* The fastest first: a slower one must be better by a few percent. */
    if (job->element != DS_BYTES) {
        TRY(encode_planes(&some, 0, ALL_PLACES), DS_BLOCK_PLANES, 0, NULL, ALL_PLACES);
        least -= least / 32;
        TRY(encode_planes(&some, DS_DELTAS, ALL_PLACES), DS_BLOCK_PLANES, DS_DELTAS, NULL, ALL_PLACES);
    } else {
        TRY(encode_zstd(&some, encoder->quick), DS_BLOCK_ZSTD, 0, encoder->quick, 0);
    }
    least -= least / 32;
    TRY(encode_zstd(&some, encoder->matching), DS_BLOCK_ZSTD, 0, encoder->matching, 0);
#undef TRY
    return best;
}

static struct choice choose(const struct job *job) {
    if (job->encoder->effort == DS_KEEP)
        return (struct choice){DS_BLOCK_RAW, 0, NULL, 0};
    return ds_is_float(job->element) ? choose_float(job) : choose_bytes(job);
}

/* Makes a block as `*chosen` says, which it has to choose first unless `is_chosen`. */
static size_t encode_block(const struct job *job, struct choice *chosen, bool is_chosen) {
    uint8_t *header = job->out - DS_BLOCK_HEADER;
    size_t stored = 0;
    /* First, because it reads the bytes in order: after that they are in the cache. */
    ds_store_32(header + 16, ds_crc32(job->bytes, job->length));
    if (!is_chosen)
        *chosen = choose(job);
    struct choice choice = *chosen;
    switch (choice.kind) {
    case DS_BLOCK_RAW:
        break;
    case DS_BLOCK_ZSTD:
        stored = encode_zstd(job, choice.compressor);
        break;
    case DS_BLOCK_PACKED:
        stored = encode_packed(job, choice.flags);
        break;
    case DS_BLOCK_PLANES:
        stored = encode_planes(job, choice.flags, choice.number);
        break;
    case DS_BLOCK_REPEATED:
        stored = choice.number;
        memcpy(job->out, job->bytes, stored);
    }
    if (!stored || stored >= job->length) {
        choice = (struct choice){DS_BLOCK_RAW, 0, NULL, 0};
        memcpy(job->out, job->bytes, job->length);
        stored = job->length;
    }
    const bool has_elements = choice.kind == DS_BLOCK_PACKED || choice.kind == DS_BLOCK_PLANES;
    ds_store_32(header, DS_BLOCK_MAGIC);
    ds_store_32(header + 4, choice.kind | (has_elements ? job->element : DS_BYTES) << 8 | choice.flags << 16);
    ds_store_32(header + 8, (uint32_t)job->length);
    ds_store_32(header + 12, (uint32_t)stored);
    return DS_BLOCK_HEADER + stored;
}

/* Floats that begin with a row again and again, as long as they do. Returns how many bytes it has taken. */
static size_t encode_rows(struct ds_encoder *encoder, const uint8_t *bytes, size_t length, uint8_t **out) {
    size_t at = 0;
    while (length - at >= ELEMENTS_BLOCK) {
        size_t some = length - at < DS_BLOCK_MOST ? length - at : DS_BLOCK_MOST, most = some / LEAST_ROWS;
        size_t row = ds_row(bytes + at, some, most < LONGEST_ROW ? most : LONGEST_ROW);
        if (!row)
            break;
        struct job job = {encoder, bytes + at, some, DS_BYTES, *out + DS_BLOCK_HEADER};
        *out += encode_block(&job, &(struct choice){DS_BLOCK_REPEATED, 0, NULL, (unsigned)row}, true);
        at += some;
    }
    return at;
}

/* Bytes with the same elements, on their grid, as blocks. */
static size_t encode_elements(struct ds_encoder *encoder, const uint8_t *bytes, size_t length,
                              enum ds_element element, uint8_t *out) {
    const uint8_t *const first = out;
    const size_t most = element == DS_BYTES ? DS_BLOCK_MOST : ELEMENTS_BLOCK;
    const bool may_have_rows = ds_is_float(element) && encoder->effort != DS_KEEP;
    struct choice choice;
    size_t at = may_have_rows ? encode_rows(encoder, bytes, length, &out) : 0;
    for (; at < length; at += most) {
        struct job job = {encoder, bytes + at, length - at < most ? length - at : most, element,
                          out + DS_BLOCK_HEADER};
        /* What takes a trial is chosen once; but not how often something is repeated. */
        out += encode_block(&job, &choice, at && !ds_is_float(element) && choice.kind != DS_BLOCK_REPEATED);
    }
    return (size_t)(out - first);
}

/* Bytes as they are, in as few blocks as possible. */
static size_t encode_raw(struct ds_encoder *encoder, const uint8_t *bytes, size_t length, uint8_t *out) {
    const uint8_t *const first = out;
    size_t at = 0;
    do {
        size_t some = length - at < DS_BLOCK_MOST ? length - at : DS_BLOCK_MOST;
        struct job job = {encoder, bytes + at, some, DS_BYTES, out + DS_BLOCK_HEADER};
        out += encode_block(&job, &(struct choice){DS_BLOCK_RAW, 0, NULL, 0}, true);
        at += some;
    } while (at < length);
    return (size_t)(out - first);
}

/* Each tensor as blocks of its own, and so what is between tensors. */
static size_t encode_runs(struct ds_encoder *encoder, const uint8_t *bytes, size_t length, uint64_t position,
                          const struct ds_run *runs, size_t count, uint8_t *out) {
    const uint8_t *const first = out;
    size_t at = 0, waiting = 0; /* the bytes from here to `at` are not elements */
    uint64_t start = 0;         /* of the run */
    for (size_t i = 0; i < count && at < length; start = runs[i++].end) {
        if (runs[i].end <= position + at || runs[i].end < start || runs[i].element >= DS_ELEMENTS)
            continue;
        uint64_t left = runs[i].end - (position + at);
        size_t end = left < length - at ? at + (size_t)left : length;
        const unsigned width = ds_widths[runs[i].element];
        size_t begin = at + (width - (position + at - start) % width) % width;
        size_t whole = begin < end ? (end - begin) / width * width : 0;
        if (runs[i].element != DS_BYTES && whole >= LEAST_TENSOR) {
            out += encode_elements(encoder, bytes + waiting, begin - waiting, DS_BYTES, out);
            out += encode_elements(encoder, bytes + begin, whole, runs[i].element, out);
            waiting = begin + whole;
        }
        at = end;
    }
    return (size_t)(out - first) + encode_elements(encoder, bytes + waiting, length - waiting, DS_BYTES, out);
}

size_t ds_encode(struct ds_encoder *encoder, const uint8_t *bytes, size_t length, uint64_t position,
                 const struct ds_run *runs, size_t count, uint8_t *out) {
    if (length) {
        size_t made = encode_runs(encoder, bytes, length, position, runs, count, out);
        /* The headers of many small tensors may take more than was saved. */
        if (made <= DS_ENCODED_MOST(length))
            return made;
    }
    return encode_raw(encoder, bytes, length, out);
}
