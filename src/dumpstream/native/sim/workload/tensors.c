#include "workload/tensors.h"

#include <math.h>
#include <string.h>

#include "workload/floats.h"
#include "workload/random.h"

const struct dtype_facts dtype_facts[DTYPE_COUNT] = {
    [DTYPE_FLOAT32] = {"float32", "DT_FLOAT", 1, 0, 4, true},
    [DTYPE_FLOAT16] = {"float16", "DT_FLOAT16", 2, 1, 2, true},
    [DTYPE_BFLOAT16] = {"bfloat16", "DT_BF16", 27, 27, 2, true},
    [DTYPE_INT32] = {"int32", "DT_INT32", 7, 3, 4, false},
    [DTYPE_INT64] = {"int64", "DT_INT64", 8, 9, 8, false},
    [DTYPE_INT8] = {"int8", "DT_INT8", 3, 2, 1, false},
    [DTYPE_FLOAT8_E4M3FN] = {"float8_e4m3fn", "DT_FLOAT8_E4M3FN", 35, 36, 1, true, 448},
    [DTYPE_FLOAT8_E5M2] = {"float8_e5m2", "DT_FLOAT8_E5M2", 34, 35, 1, true, 57344},
    [DTYPE_UINT8] = {"uint8", "DT_UINT8", 4, 4, 1, false},
};

enum {
    BLOCK_ELEMENTS = 256,
    LANES = 16,
    VOCABULARY = 50257,
    SPACING = 64, /* in a tensor with NaN or infinities, one of so many elements */
};

/* Values are made here, a whole block at a time, and then copied, because a tensor may start
 * at any byte. Every loop over a block has a constant length and no branch, so that the
 * compiler can use vector instructions. */
union block {
    float float32[BLOCK_ELEMENTS];
    uint16_t bits16[BLOCK_ELEMENTS];
    int32_t int32[BLOCK_ELEMENTS];
    int64_t int64[BLOCK_ELEMENTS];
    int8_t int8[BLOCK_ELEMENTS];
    uint8_t bytes[BLOCK_ELEMENTS * 8];
};

/* The random numbers of one block: lanes of a xorshift generator, seeded by position. */
static void draw(uint64_t key, uint64_t number, uint64_t out[BLOCK_ELEMENTS]) {
    uint64_t lanes[LANES];
    for (size_t lane = 0; lane < LANES; lane++)
        lanes[lane] = mix(key, number * LANES + lane) | 1;
    for (size_t i = 0; i < BLOCK_ELEMENTS; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            uint64_t x = lanes[lane];
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            lanes[lane] = out[i + lane] = x;
        }
    }
}

#define BELL_DEVIATION (37837.0F * 8192.0F)

/* A bell curve that ends at 3.5 deviations. The sum of four draws gives it its shape; more
 * bits below fill the mantissas of floats. */
static void draw_bell(const struct tensor *tensor, uint64_t number, int32_t out[BLOCK_ELEMENTS]) {
    uint64_t random[BLOCK_ELEMENTS];
    const int32_t keep_negative = tensor->rectified ? 0 : -1;
    draw(tensor->key, number, random);
    for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
        uint32_t a = (uint32_t)random[i], b = (uint32_t)(random[i] >> 32);
        int32_t sum = (int32_t)((a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16)) - 131070;
        int32_t drawn = sum * 8192 + (int32_t)((a ^ b << 7) & 0x1fff);
        out[i] = drawn & (~(drawn >> 31) | keep_negative);
    }
}

/* Weights have a deviation of 0.02, activations of 1. */
static void draw_normal(const struct tensor *tensor, uint64_t number, float out[BLOCK_ELEMENTS]) {
    const float scale = (tensor->rectified ? 1.0F : 0.02F) / BELL_DEVIATION;
    int32_t bell[BLOCK_ELEMENTS];
    draw_bell(tensor, number, bell);
    for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
        out[i] = (float)bell[i] * scale;
}

/* Small ids are by far the most frequent. */
static void draw_ids(const struct tensor *tensor, uint64_t number, uint32_t out[BLOCK_ELEMENTS]) {
    uint64_t random[BLOCK_ELEMENTS];
    draw(tensor->key, number, random);
    for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
        uint64_t u = random[i] >> 32;
        uint64_t cube = (u * u >> 32) * u >> 32;
        out[i] = (uint32_t)(cube * VOCABULARY >> 32);
    }
}

static void fill_floats(const struct tensor *tensor, uint64_t number, union block *out) {
    float values[BLOCK_ELEMENTS];
    draw_normal(tensor, number, values);
    floats_write(tensor->dtype, out->bytes, 0, BLOCK_ELEMENTS, values);
}

static void fill_integers(const struct tensor *tensor, uint64_t number, union block *out) {
    uint32_t ids[BLOCK_ELEMENTS];
    int32_t bell[BLOCK_ELEMENTS];
    if (tensor->dtype == DTYPE_INT8) {
        draw_bell(tensor, number, bell);
        for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
            out->int8[i] = (int8_t)(bell[i] >> 24);
        return;
    }
    draw_ids(tensor, number, ids);
    if (tensor->dtype == DTYPE_INT32)
        memcpy(out->int32, ids, sizeof ids);
    else
        for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
            out->int64[i] = ids[i];
}

/* Puts a value into every SPACING-th element. */
static void strew(const struct tensor *tensor, uint64_t number, union block *out, float value) {
    uint64_t spacing = tensor->elements < SPACING ? tensor->elements : SPACING;
    uint64_t first = number * BLOCK_ELEMENTS;
    uint64_t phase = below(tensor->key, spacing);
    for (size_t i = (size_t)((phase + spacing - first % spacing) % spacing); i < BLOCK_ELEMENTS; i += spacing)
        floats_write(tensor->dtype, out->bytes, i, 1, &value);
}

/* Changes every byte of an eighth of the elements, from the first quarter on. */
static void overwrite(const struct tensor *tensor, uint64_t number, union block *out) {
    const uint32_t width = dtype_facts[tensor->dtype].bytes;
    const uint64_t begin = tensor->elements / 4, end = begin + (tensor->elements + 7) / 8;
    for (uint64_t i = 0; i < BLOCK_ELEMENTS; i++) {
        uint64_t element = number * BLOCK_ELEMENTS + i;
        for (uint32_t byte = 0; byte < width && element >= begin && element < end; byte++)
            out->bytes[i * width + byte] ^= 0x5a;
    }
}

/* Copies what there is of a block of given bytes. */
static void copy_block(const struct tensor *tensor, uint64_t number, union block *out) {
    const uint64_t block_bytes = BLOCK_ELEMENTS * (uint64_t)dtype_facts[tensor->dtype].bytes;
    const uint64_t left = tensor->bytes - number * block_bytes;
    memcpy(out->bytes, tensor->given + number * block_bytes, left < block_bytes ? left : block_bytes);
}

static void make_block(const struct tensor *tensor, uint64_t number, union block *out) {
    if (tensor->given != NULL)
        copy_block(tensor, number, out);
    else if (dtype_facts[tensor->dtype].floating)
        fill_floats(tensor, number, out);
    else
        fill_integers(tensor, number, out);
    if (tensor->has_nan)
        strew(tensor, number, out, NAN);
    if (tensor->has_infinity)
        strew(tensor, number, out, INFINITY);
    if (tensor->overwritten)
        overwrite(tensor, number, out);
}

void tensor_read(const struct tensor *tensor, uint64_t offset, size_t bytes, uint8_t *out) {
    const size_t block_bytes = BLOCK_ELEMENTS * (size_t)dtype_facts[tensor->dtype].bytes;
    uint64_t number = offset / block_bytes;
    size_t skip = (size_t)(offset % block_bytes);
    union block block;
    if (tensor->given != NULL && !tensor->overwritten) {
        memcpy(out, tensor->given + offset, bytes);
        return;
    }
    while (bytes > 0) {
        size_t ready = block_bytes - skip;
        size_t taken = ready < bytes ? ready : bytes;
        make_block(tensor, number, &block);
        memcpy(out, block.bytes + skip, taken);
        out += taken;
        bytes -= taken;
        number++;
        skip = 0;
    }
}

/* The first `count` elements of a block as numbers. */
static void block_values(enum dtype dtype, const union block *block, size_t count, double *out) {
    float floats[BLOCK_ELEMENTS];
    if (dtype_facts[dtype].floating)
        floats_read(dtype, block->bytes, 0, count, floats);
    for (size_t i = 0; i < count; i++) {
        if (dtype_facts[dtype].floating)
            out[i] = floats[i];
        else if (dtype == DTYPE_INT32)
            out[i] = block->int32[i];
        else if (dtype == DTYPE_INT64)
            out[i] = (double)block->int64[i];
        else
            out[i] = block->int8[i];
    }
}

void tensor_measure(const struct tensor *tensor, double statistics[MEASURED_COUNT]) {
    const double most = dtype_facts[tensor->dtype].most;
    double sum = 0, squares = 0, values[BLOCK_ELEMENTS];
    union block block;
    memset(statistics, 0, MEASURED_COUNT * sizeof *statistics);
    statistics[MAXIMUM] = -INFINITY;
    statistics[MINIMUM] = INFINITY;
    for (uint64_t first = 0; first < tensor->elements; first += BLOCK_ELEMENTS) {
        uint64_t left = tensor->elements - first;
        size_t count = left < BLOCK_ELEMENTS ? (size_t)left : BLOCK_ELEMENTS;
        make_block(tensor, first / BLOCK_ELEMENTS, &block);
        block_values(tensor->dtype, &block, count, values);
        for (size_t i = 0; i < count; i++) {
            const double value = values[i];
            statistics[MAXIMUM] = value > statistics[MAXIMUM] ? value : statistics[MAXIMUM];
            statistics[MINIMUM] = value < statistics[MINIMUM] ? value : statistics[MINIMUM];
            statistics[NANS] += isnan(value) ? 1 : 0;
            statistics[NEGATIVE_INFINITIES] += value == -INFINITY;
            statistics[POSITIVE_INFINITIES] += value == INFINITY;
            statistics[SATURATED] += most > 0 && fabs(value) == most;
            sum += value;
            squares += value * value;
        }
    }
    statistics[AVERAGE] = sum / (double)tensor->elements;
    statistics[NORM] = sqrt(squares);
}
