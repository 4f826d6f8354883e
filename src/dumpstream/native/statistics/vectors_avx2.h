/* The operations of x86-64 with AVX2, FMA and F16C. */
#pragma once

#define DS_VECTOR_BYTES 32
#include <immintrin.h>

#include "vectors.h"

DS_OF_TWO(vf, max_f, _mm256_max_ps(a, b))
DS_OF_TWO(vf, min_f, _mm256_min_ps(a, b))
DS_OF_TWO(vd, max_d, _mm256_max_pd(a, b))
DS_OF_TWO(vd, min_d, _mm256_min_pd(a, b))
DS_OF_TWO(vi, max_i, (vi)_mm256_max_epi32((__m256i)a, (__m256i)b))
DS_OF_TWO(vi, min_i, (vi)_mm256_min_epi32((__m256i)a, (__m256i)b))
DS_OF_TWO(vb, max_b, (vb)_mm256_max_epi8((__m256i)a, (__m256i)b))
DS_OF_TWO(vb, min_b, (vb)_mm256_min_epi8((__m256i)a, (__m256i)b))

DS_INLINE vd add_product_f(vd a, vd b, vd c) {
    return _mm256_fmadd_pd(b, c, a);
}

DS_OF_ONE(vd, low_f, vf, _mm256_cvtps_pd(_mm256_castps256_ps128(x)))
DS_OF_ONE(vd, high_f, vf, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)))
DS_OF_ONE(vd, low_i, vi, _mm256_cvtepi32_pd(_mm256_castsi256_si128((__m256i)x)))
DS_OF_ONE(vd, high_i, vi, _mm256_cvtepi32_pd(_mm256_extracti128_si256((__m256i)x, 1)))

DS_INLINE vf load_f2(const uint8_t *data) {
    vf x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)data));
    /* Otherwise clang joins this with the conversion to doubles and converts lane by lane. */
    __asm__("" : "+x"(x));
    return x;
}

DS_INLINE vi load_i2(const uint8_t *data) {
    return (vi)_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)data));
}

DS_INLINE vi load_u2(const uint8_t *data) {
    return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)data));
}
