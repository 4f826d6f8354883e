/* Bytes to encode that are the same on every machine, as real tensors are and as none is. */
#pragma once

#include <string.h>

#include "dumpstream/codec.h"
#include "random.h"

enum pattern {
    BELL,     /* floats around 0, as weights are */
    WIDE,     /* floats with many exponents, as gradients are */
    RELU,     /* as BELL, and half of them 0 */
    TINY,     /* subnormal and almost as small */
    NOISE,    /* any bytes */
    CONSTANT, /* one element again and again */
    ROWS,     /* a row of a matrix again and again */
    COUNT,    /* integers that grow by one */
    IDS,      /* small integers */
    ZEROS,
    PATTERNS
};

static const unsigned widths[DS_ELEMENTS] = {1, 2, 2, 4, 8, 2, 4, 8};

static float bell(void) {
    int sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (int)next_random(1 << 20);
    return (float)(sum - (6 << 20)) / (float)(1 << 20);
}

/* Rounds towards 0, and values that are too small to 0. */
static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 23 & 255) - 112;
    if (exponent <= 0)
        return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)(exponent > 30 ? 30 : exponent) << 10 |
                      (bits >> 13 & 0x3ff));
}

static void store_float(enum ds_element element, float value, uint8_t *at) {
    double wide = value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = element == DS_HALF ? half_of(value) : (uint16_t)(bits >> 16);
    if (element == DS_DOUBLE)
        memcpy(at, &wide, sizeof wide);
    else if (element == DS_SINGLE)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &half, sizeof half);
}

static float float_of(enum pattern pattern) {
    float value = bell();
    if (pattern == RELU)
        return value > 0 ? value : 0;
    if (pattern == WIDE)
        for (unsigned i = next_random(40); i > 0; i--)
            value *= 0.5f;
    if (pattern == TINY)
        value *= 0x1p-130f;
    return value;
}

/* Writes `length` bytes; those behind the last whole element are 0. */
static void make_elements(enum ds_element element, enum pattern pattern, uint8_t *out, size_t length) {
    const unsigned width = widths[element];
    const size_t row = 600;
    memset(out, 0, length);
    for (size_t i = 0; i + width <= length && pattern != ZEROS; i += width) {
        uint64_t number = pattern == COUNT ? i / width + 1000 : next_random(50000);
        if ((pattern == CONSTANT && i) || (pattern == ROWS && i >= row * width))
            memcpy(out + i, pattern == CONSTANT ? out : out + i - row * width, width);
        else if (pattern == NOISE)
            for (unsigned b = 0; b < width; b++)
                out[i + b] = (uint8_t)next_random(256);
        else if (pattern >= COUNT || element == DS_BYTES || element >= DS_INTEGER_2)
            memcpy(out + i, &number, width);
        else
            store_float(element, float_of(pattern), out + i);
    }
}
