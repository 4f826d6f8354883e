/* Kernels for x86-64 with AVX2, FMA and F16C; compiled for these, called only where they are. */
#define DS_VECTOR_BYTES 32
#include <immintrin.h>

#include "lanes.h"

vf max_f(vf a, vf b) {
    return _mm256_max_ps(a, b);
}

vf min_f(vf a, vf b) {
    return _mm256_min_ps(a, b);
}

vd max_d(vd a, vd b) {
    return _mm256_max_pd(a, b);
}

vd min_d(vd a, vd b) {
    return _mm256_min_pd(a, b);
}

vi max_i(vi a, vi b) {
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

vi min_i(vi a, vi b) {
    return (vi)_mm256_min_epi32((__m256i)a, (__m256i)b);
}

vb max_b(vb a, vb b) {
    return (vb)_mm256_max_epi8((__m256i)a, (__m256i)b);
}

vb min_b(vb a, vb b) {
    return (vb)_mm256_min_epi8((__m256i)a, (__m256i)b);
}

vd low_f(vf x) {
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}

vd high_f(vf x) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}

vd low_i(vi x) {
    return _mm256_cvtepi32_pd(_mm256_castsi256_si128((__m256i)x));
}

vd high_i(vi x) {
    return _mm256_cvtepi32_pd(_mm256_extracti128_si256((__m256i)x, 1));
}

vf load_f2(const uint8_t *data) {
    vf x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)data));
    /* Else clang joins this with the conversion to doubles and does both one by one. */
    __asm__("" : "+x"(x));
    return x;
}

vi load_i2(const uint8_t *data) {
    return (vi)_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)data));
}

vi load_u2(const uint8_t *data) {
    return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)data));
}

const struct ds_kernels ds_avx2_kernels = DS_KERNEL_TABLE("avx2");
