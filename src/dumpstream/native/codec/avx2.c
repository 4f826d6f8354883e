/* The kernels for x86-64 with AVX2 and PCLMULQDQ. */
#include <immintrin.h>

#define DS_SHUFFLE_8(bytes, places, out)                                                                     \
    _mm_storel_epi64((__m128i *)(out), _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)(bytes)),           \
                                                        _mm_loadl_epi64((const __m128i *)(places))))
#define DS_SHUFFLE_16(bytes, places, out)                                                                    \
    _mm_storeu_si128((__m128i *)(out), _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(bytes)),           \
                                                        _mm_loadu_si128((const __m128i *)(places))))
/* A bit for each byte of a row that is `value`. */
#define DS_EQUAL_BITS(bytes, value)                                                                          \
    ((uint32_t)_mm256_movemask_epi8(                                                                         \
        _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(bytes)), _mm256_set1_epi8((char)(value)))))

#include "elements.h"

/* CRC-32 by folding: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction"
 * (Intel, 2009), with its constants for this polynomial, bits reflected. */

#define FOLDED 64u

static __m128i fold(__m128i sum, __m128i next, __m128i by) {
    __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static __m128i load(const uint8_t *bytes) {
    return _mm_loadu_si128((const __m128i *)bytes);
}

/* Returns the checksum that 128 bits stand for. */
static uint32_t reduce(__m128i sum) {
    const __m128i by = _mm_set_epi64x(0x0ccaa009e, 0), last = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1db710641, 0x1f7011641), low_32 = _mm_setr_epi32(-1, 0, -1, 0);
    sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by, 0x10), _mm_srli_si128(sum, 8));
    sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low_32), last, 0x00), _mm_srli_si128(sum, 4));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), barrett, 0x00);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), barrett, 0x10);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1);
}

/* Folds what remains of the bytes into the sum of those before. */
static uint32_t finish(__m128i sum, const uint8_t *bytes, size_t length) {
    const __m128i by_1 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    size_t at = 0;
    for (; at + 16 <= length; at += 16)
        sum = fold(sum, load(bytes + at), by_1);
    return ds_crc32_portable(~reduce(sum), bytes + at, length - at);
}

static uint32_t crc32(uint32_t crc, const uint8_t *bytes, size_t length) {
    const __m128i by_4 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_1 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    if (length < FOLDED)
        return ds_crc32_portable(crc, bytes, length);
    __m128i sum[4];
    for (unsigned k = 0; k < 4; k++)
        sum[k] = load(bytes + 16 * k);
    sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)~crc));
    size_t at = FOLDED;
    for (; at + FOLDED <= length; at += FOLDED)
        for (unsigned k = 0; k < 4; k++)
            sum[k] = fold(sum[k], load(bytes + at + 16 * k), by_4);
    for (unsigned k = 1; k < 4; k++)
        sum[k] = fold(sum[k - 1], sum[k], by_1);
    return finish(sum[3], bytes + at, length - at);
}

#define WIDE __attribute__((target("avx2,pclmul,vpclmulqdq")))

WIDE static __m256i fold_wide(__m256i sum, __m256i next, __m256i by) {
    __m256i low = _mm256_clmulepi64_epi128(sum, by, 0x00), high = _mm256_clmulepi64_epi128(sum, by, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

static __m256i load_wide(const uint8_t *bytes) {
    return _mm256_loadu_si256((const __m256i *)bytes);
}

/* For processors that fold twice as much at once (VPCLMULQDQ). */
WIDE static uint32_t crc32_wide(uint32_t crc, const uint8_t *bytes, size_t length) {
    const __m256i by_4 = _mm256_setr_epi64x(0x1e88ef372, 0x14a7fe880, 0x1e88ef372, 0x14a7fe880);
    const __m256i by_1 = _mm256_setr_epi64x(0x0f1da05aa, 0x15a546366, 0x0f1da05aa, 0x15a546366);
    const __m128i by_half = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    if (length < 2 * FOLDED)
        return crc32(crc, bytes, length);
    __m256i sum[4];
    for (unsigned k = 0; k < 4; k++)
        sum[k] = load_wide(bytes + 32 * k);
    sum[0] = _mm256_xor_si256(sum[0], _mm256_setr_epi32((int)~crc, 0, 0, 0, 0, 0, 0, 0));
    size_t at = 2 * FOLDED;
    for (; at + 2 * FOLDED <= length; at += 2 * FOLDED)
        for (unsigned k = 0; k < 4; k++)
            sum[k] = fold_wide(sum[k], load_wide(bytes + at + 32 * k), by_4);
    for (unsigned k = 1; k < 4; k++)
        sum[k] = fold_wide(sum[k - 1], sum[k], by_1);
    __m128i all = fold(_mm256_castsi256_si128(sum[3]), _mm256_extracti128_si256(sum[3], 1), by_half);
    return finish(all, bytes + at, length - at);
}

DS_CODEC_KERNELS(avx2, crc32);
DS_CODEC_KERNELS(avx2_wide, crc32_wide);
