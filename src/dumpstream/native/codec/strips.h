/* Kernels for strips of 256 values, made of operations that every set of vectors has. */
#pragma once

#include "kernels.h"

#define DS_INLINE static inline __attribute__((always_inline))

/* A row of a strip. Rows are never passed to functions, which would do that differently with AVX. */
#define DS_ROW 32u
typedef uint8_t row __attribute__((vector_size(DS_ROW)));

#define load_row(at)                                                                                         \
    ({                                                                                                       \
        row loaded_;                                                                                         \
        memcpy(&loaded_, (at), sizeof loaded_);                                                              \
        loaded_;                                                                                             \
    })

#define store_row(at, value)                                                                                 \
    do {                                                                                                     \
        row stored_ = (value);                                                                               \
        memcpy((at), &stored_, sizeof stored_);                                                              \
    } while (0)

/* The lowest bit of each of 256 bytes, in 32 bytes. */
DS_INLINE void pack_1(const uint8_t *from, unsigned shift, uint8_t *out) {
    row packed = {0};
    for (unsigned k = 0; k < 8; k++)
        packed |= ((load_row(from + DS_ROW * k) >> shift) & 1) << k;
    store_row(out, packed);
}

/* The lowest 2 bits of each of 256 bytes, in 64 bytes. */
DS_INLINE void pack_2(const uint8_t *from, uint8_t *out) {
    for (unsigned r = 0; r < 2; r++, from += 4 * DS_ROW) {
        row packed = {0};
        for (unsigned k = 0; k < 4; k++)
            packed |= (load_row(from + DS_ROW * k) & 3) << (2 * k);
        store_row(out + DS_ROW * r, packed);
    }
}

/* 256 numbers of 4 bits in 128 bytes. */
DS_INLINE void pack_4(const uint8_t *from, uint8_t *out) {
    for (unsigned r = 0; r < 4; r++, from += 2 * DS_ROW)
        store_row(out + DS_ROW * r, load_row(from) | load_row(from + DS_ROW) << 4);
}

DS_INLINE void pack_bits(const uint8_t *from, unsigned bits, uint8_t *out) {
    if (bits == 4) {
        pack_4(from, out);
        return;
    }
    pack_2(from, out);
    if (bits == 3)
        pack_1(from, 2, out + 2 * DS_ROW);
}

DS_INLINE void unpack_bits(const uint8_t *from, unsigned bits, uint8_t *out) {
    if (bits == 4) {
        for (unsigned r = 0; r < 4; r++) {
            row packed = load_row(from + DS_ROW * r);
            store_row(out + 2 * DS_ROW * r, packed & 15);
            store_row(out + 2 * DS_ROW * r + DS_ROW, packed >> 4);
        }
        return;
    }
    row top = bits == 3 ? load_row(from + 2 * DS_ROW) : (row){0};
    for (unsigned k = 0; k < 8; k++) {
        row low = load_row(from + DS_ROW * (k / 4)) >> (2 * (k % 4)) & 3;
        store_row(out + DS_ROW * k, low | (top >> k & 1) << 2);
    }
}

/* Returns the highest bit of each of those of 8 codes that are `escape`. Codes have at most 4 bits. */
DS_INLINE uint64_t escape_mask(const uint8_t *codes, uint8_t escape) {
    const uint64_t ones = 0x0101010101010101u, tops = ones << 7;
    uint64_t eight;
    memcpy(&eight, codes, sizeof eight);
    eight ^= ones * escape;
    return ~((eight | tops) - ones) & tops;
}

/* Writes those of 8 exponents that have a bit in `mask`, and up to 8 bytes in all; returns how many there
 * are. Most often there are none or one, and which it is cannot be predicted. */
DS_INLINE size_t keep_escapes(uint64_t mask, const uint8_t *exponents, uint8_t *escapes) {
#ifdef DS_SHUFFLE_8
    unsigned places = (unsigned)(mask * 0x0002040810204081u >> 56);
    DS_SHUFFLE_8(exponents, ds_places.keep_1[places], escapes);
    return ds_places.count[places];
#else
    size_t kept = 0;
    for (; mask; mask &= mask - 1)
        escapes[kept++] = exponents[(unsigned)__builtin_ctzll(mask) / 8];
    return kept;
#endif
}

/* Writes the exponents of a row whose code is `escape`, and up to 8 bytes in all; returns how many there are.
 */
DS_INLINE size_t keep_escapes_of_row(const uint8_t *codes, uint8_t escape, const uint8_t *exponents,
                                     uint8_t *escapes) {
    const uint8_t *const first = escapes;
#ifdef DS_EQUAL_BITS
    enum { FEW = 4 }; /* are written without asking whether they are there */
    uint32_t bits = DS_EQUAL_BITS(codes, escape);
    unsigned count = (unsigned)__builtin_popcount(bits);
    if (count <= FEW) {
        for (unsigned k = 0; k < FEW; k++, bits &= bits - 1)
            escapes[k] = exponents[__builtin_ctz(bits | 1u << 31)];
        return count;
    }
#endif
    for (unsigned j = 0; j < DS_ROW; j += 8)
        escapes += keep_escapes(escape_mask(codes + j, escape), exponents + j, escapes);
    return (size_t)(escapes - first);
}

/* Puts those of the `count` escapes that follow the `used` ones where 8 exponents have a bit in `mask`, as
 * far as there are enough; returns how many are used then, or should be. */
DS_INLINE size_t take_escapes(uint64_t mask, const uint8_t *escapes, size_t used, size_t count,
                              uint8_t *exponents) {
#ifdef DS_SHUFFLE_8
    if (used + 8 <= count) { /* it reads as many, whichever it needs */
        unsigned places = (unsigned)(mask * 0x0002040810204081u >> 56);
        uint64_t eight, taken;
        DS_SHUFFLE_8(escapes + used, ds_places.spread_1[places], (uint8_t *)&taken);
        memcpy(&eight, exponents, sizeof eight);
        eight = (eight & ~((mask >> 7) * 255)) | taken;
        memcpy(exponents, &eight, sizeof eight);
        return used + ds_places.count[places];
    }
#endif
    for (; mask; mask &= mask - 1, used++)
        exponents[(unsigned)__builtin_ctzll(mask) / 8] = used < count ? escapes[used] : 0;
    return used;
}

/* Elements wherever they are in memory. */
typedef uint16_t any_2 __attribute__((aligned(1), may_alias));
typedef uint32_t any_4 __attribute__((aligned(1), may_alias));
typedef uint64_t any_8 __attribute__((aligned(1), may_alias));

/* Takes 256 values apart: the exponent, 8 bits that are not, and for half precision 3 more. */
DS_INLINE void take_apart(enum ds_element element, const uint8_t *values, uint8_t *restrict exponent,
                          uint8_t *restrict low, uint8_t *restrict high) {
    const any_2 *value = (const any_2 *)values;
    for (unsigned j = 0; j < DS_STRIP; j++) {
        if (element == DS_HALF) {
            exponent[j] = (uint8_t)(value[j] >> 10 & 31);
            low[j] = (uint8_t)value[j];
            high[j] = (uint8_t)((value[j] >> 8 & 3) | (value[j] >> 13 & 4));
        } else {
            exponent[j] = (uint8_t)(value[j] >> 7);
            low[j] = (uint8_t)((value[j] & 0x7f) | (value[j] >> 8 & 0x80));
        }
    }
}

DS_INLINE void put_together(enum ds_element element, const uint8_t *exponents, const uint8_t *lows,
                            const uint8_t *highs, uint8_t *restrict values) {
    any_2 *value = (any_2 *)values;
    for (unsigned j = 0; j < DS_STRIP; j++) {
        unsigned exponent = exponents[j], low = lows[j];
        if (element == DS_HALF) {
            unsigned high = highs[j];
            value[j] = (uint16_t)(low | (high & 3) << 8 | (exponent & 31) << 10 | (high & 4) << 13);
        } else {
            value[j] = (uint16_t)((low & 0x7f) | exponent << 7 | (low & 0x80) << 8);
        }
    }
}

DS_INLINE size_t pack_strips(enum ds_element element, const uint8_t *values, size_t strips, unsigned bits,
                             unsigned base, uint8_t *residues, uint8_t *codes, uint8_t *escapes) {
    const uint8_t escape = (uint8_t)((1u << bits) - 1);
    uint8_t *first = escapes;
    for (size_t s = 0; s < strips; s++, values += 2 * DS_STRIP, codes += DS_ROW * bits) {
        uint8_t exponent[DS_STRIP], high[DS_STRIP], code[DS_STRIP];
        take_apart(element, values, exponent, residues, high);
        residues += DS_STRIP;
        for (unsigned j = 0; j < DS_STRIP; j++) {
            uint8_t distance = (uint8_t)(base - exponent[j]);
            code[j] = distance < escape ? distance : escape;
        }
        if (element == DS_HALF) {
            pack_bits(high, 3, residues);
            residues += 3 * DS_ROW;
        }
        pack_bits(code, bits, codes);
        for (unsigned j = 0; j < DS_STRIP; j += DS_ROW)
            escapes += keep_escapes_of_row(code + j, escape, exponent + j, escapes);
    }
    return (size_t)(escapes - first);
}

DS_INLINE size_t unpack_strips(enum ds_element element, const uint8_t *residues, const uint8_t *codes,
                               const uint8_t *escapes, size_t count, size_t strips, unsigned bits,
                               unsigned base, uint8_t *values) {
    const uint8_t escape = (uint8_t)((1u << bits) - 1);
    size_t used = 0;
    for (size_t s = 0; s < strips; s++, values += 2 * DS_STRIP, codes += DS_ROW * bits) {
        uint8_t exponent[DS_STRIP], high[DS_STRIP], code[DS_STRIP];
        unpack_bits(codes, bits, code);
        for (unsigned j = 0; j < DS_STRIP; j++)
            exponent[j] = (uint8_t)(base - code[j]);
        for (unsigned j = 0; j < DS_STRIP; j += 8)
            used = take_escapes(escape_mask(code + j, escape), escapes, used, count, exponent + j);
        const uint8_t *low = residues;
        residues += DS_STRIP;
        if (element == DS_HALF) {
            unpack_bits(residues, 3, high);
            residues += 3 * DS_ROW;
        }
        put_together(element, exponent, low, high, values);
    }
    return used;
}

/* One loop for each number of bits, which the compiler then knows. */

static size_t pack(enum ds_element element, const uint8_t *values, size_t strips, unsigned bits,
                   unsigned base, uint8_t *residues, uint8_t *codes, uint8_t *escapes) {
#define DS_CASE(element_, bits_)                                                                             \
    if (element == (element_) && bits == (bits_))                                                            \
        return pack_strips(element_, values, strips, bits_, base, residues, codes, escapes);
    DS_CASE(DS_BFLOAT, 2)
    DS_CASE(DS_BFLOAT, 3)
    DS_CASE(DS_BFLOAT, 4)
    DS_CASE(DS_HALF, 2)
    DS_CASE(DS_HALF, 3)
    DS_CASE(DS_HALF, 4)
#undef DS_CASE
    return 0;
}

static size_t unpack(enum ds_element element, const uint8_t *residues, const uint8_t *codes,
                     const uint8_t *escapes, size_t count, size_t strips, unsigned bits, unsigned base,
                     uint8_t *values) {
#define DS_CASE(element_, bits_)                                                                             \
    if (element == (element_) && bits == (bits_))                                                            \
        return unpack_strips(element_, residues, codes, escapes, count, strips, bits_, base, values);
    DS_CASE(DS_BFLOAT, 2)
    DS_CASE(DS_BFLOAT, 3)
    DS_CASE(DS_BFLOAT, 4)
    DS_CASE(DS_HALF, 2)
    DS_CASE(DS_HALF, 3)
    DS_CASE(DS_HALF, 4)
#undef DS_CASE
    return 0;
}
