/* The operations of any machine: vectors of 16 bytes, which the compiler breaks up on machines
 * without vectors. */
#pragma once

#define DS_VECTOR_BYTES 16
#include "vectors.h"

DS_OF_TWO(vf, max_f, DS_SELECT(vf, (vi)(a > b), a, b))
DS_OF_TWO(vf, min_f, DS_SELECT(vf, (vi)(a < b), a, b))
DS_OF_TWO(vd, max_d, DS_SELECT(vd, (vl)(a > b), a, b))
DS_OF_TWO(vd, min_d, DS_SELECT(vd, (vl)(a < b), a, b))
DS_OF_TWO(vi, max_i, DS_SELECT(vi, a > b, a, b))
DS_OF_TWO(vi, min_i, DS_SELECT(vi, a < b, a, b))
DS_OF_TWO(vb, max_b, DS_SELECT(vb, a > b, a, b))
DS_OF_TWO(vb, min_b, DS_SELECT(vb, a < b, a, b))

DS_INLINE vd add_product_f(vd a, vd b, vd c) {
    return a + b * c;
}

DS_OF_ONE(vd, low_f, vf, (vd){x[0], x[1]})
DS_OF_ONE(vd, high_f, vf, (vd){x[2], x[3]})
DS_OF_ONE(vd, low_i, vi, (vd){x[0], x[1]})
DS_OF_ONE(vd, high_i, vi, (vd){x[2], x[3]})

DS_INLINE vi load_i2(const uint8_t *data) {
    typedef int16_t half __attribute__((vector_size(DS_VECTOR_BYTES / 2)));
    return __builtin_convertvector(DS_LOAD(half, data), vi);
}

DS_INLINE vi load_u2(const uint8_t *data) {
    typedef uint16_t half __attribute__((vector_size(DS_VECTOR_BYTES / 2)));
    return __builtin_convertvector(DS_LOAD(half, data), vi);
}

/* The shifted bits, read as a float, are 2^112 times too small; so are subnormals. */
DS_INLINE vf load_f2(const uint8_t *data) {
    vi bits = load_u2(data);
    vf magnitude = (vf)((bits & 0x7fff) << 13) * 0x1p112f;
    vi special = ((bits & 0x7c00) == 0x7c00) & 0x7f800000;
    return (vf)((vi)magnitude | special | (bits & 0x8000) << 16);
}
