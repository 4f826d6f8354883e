/* Rows of a tensor as float32, and back, with the rounding of the hardware: to nearest, ties to even, too
 * large ones to infinity, or in eight bits to the largest value. There is one NaN, whatever the processor
 * made. No loop has a branch, so that the compiler can use vector instructions. */
#pragma once

#include <string.h>

#include "workload/tensors.h"

static inline uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float16_value(uint16_t half) {
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    float finite = bits_float(magnitude) * 0x1p112F;
    uint32_t bits = magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : float_bits(finite);
    return bits_float(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t float16_bits(float value) {
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x38000000 + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5F) - 0x3f000000;
    uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;
    half |= bits >> 16 & 0x8000;
    return (uint16_t)(magnitude > 0x7f800000 ? 0x7e00 : half);
}

static inline float bfloat16_value(uint16_t half) {
    return bits_float((uint32_t)half << 16);
}

static inline uint16_t bfloat16_bits(float value) {
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

static inline float e4m3_value(uint8_t code) {
    float magnitude = bits_float((uint32_t)(code & 0x7f) << 20) * 0x1p120F;
    uint32_t bits = (code & 0x7f) == 0x7f ? 0x7fc00000 : float_bits(magnitude);
    return bits_float(bits | (uint32_t)(code & 0x80) << 24);
}

/* There is no infinity: too large values become the largest. */
static inline uint8_t e4m3_bits(float value) {
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x3c000000 + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0x1p14F) - 0x46800000;
    uint32_t code = magnitude < 0x3c800000 ? subnormal : normal;
    code = magnitude >= 0x43e00000 ? 0x7e : code;
    code |= bits >> 24 & 0x80;
    return (uint8_t)(magnitude > 0x7f800000 ? 0x7f : code);
}

static inline float e5m2_value(uint8_t code) {
    return float16_value((uint16_t)(code << 8));
}

/* Too large values become the largest here as well, although there is an infinity. */
static inline uint8_t e5m2_bits(float value) {
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x38000000 + 0xfffff + ((magnitude >> 21) & 1)) >> 21;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0x1p7F) - 0x43000000;
    uint32_t code = magnitude < 0x38800000 ? subnormal : normal;
    code = magnitude >= 0x47600000 ? 0x7b : code;
    code |= bits >> 24 & 0x80;
    return (uint8_t)(magnitude > 0x7f800000 ? 0x7e : code);
}

/* Reads `count` elements of a floating type, from the element `first` on. */
void floats_read(enum dtype dtype, const uint8_t *bytes, size_t first, size_t count, float *out);

void floats_write(enum dtype dtype, uint8_t *bytes, size_t first, size_t count, const float *values);
