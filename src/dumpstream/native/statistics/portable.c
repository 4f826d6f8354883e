/* Kernels for any machine: vectors of 16 bytes, which the compiler breaks up
 * where there are none. */
#define DS_VECTOR_BYTES 16
#include "lanes.h"

vf max_f(vf a, vf b) {
    return DS_SELECT(vf, (vi)(a > b), a, b);
}

vf min_f(vf a, vf b) {
    return DS_SELECT(vf, (vi)(a < b), a, b);
}

vd max_d(vd a, vd b) {
    return DS_SELECT(vd, (vl)(a > b), a, b);
}

vd min_d(vd a, vd b) {
    return DS_SELECT(vd, (vl)(a < b), a, b);
}

vi max_i(vi a, vi b) {
    return DS_SELECT(vi, a > b, a, b);
}

vi min_i(vi a, vi b) {
    return DS_SELECT(vi, a < b, a, b);
}

vb max_b(vb a, vb b) {
    return DS_SELECT(vb, a > b, a, b);
}

vb min_b(vb a, vb b) {
    return DS_SELECT(vb, a < b, a, b);
}

vd low_f(vf x) {
    return (vd){x[0], x[1]};
}

vd high_f(vf x) {
    return (vd){x[2], x[3]};
}

vd low_i(vi x) {
    return (vd){x[0], x[1]};
}

vd high_i(vi x) {
    return (vd){x[2], x[3]};
}

vi load_i2(const uint8_t *data) {
    typedef int16_t half __attribute__((vector_size(DS_VECTOR_BYTES / 2)));
    return __builtin_convertvector(DS_LOAD(half, data), vi);
}

vi load_u2(const uint8_t *data) {
    typedef uint16_t half __attribute__((vector_size(DS_VECTOR_BYTES / 2)));
    return __builtin_convertvector(DS_LOAD(half, data), vi);
}

/* Read as a float, the moved bits are 2^112 too small, subnormals too. */
vf load_f2(const uint8_t *data) {
    vi bits = load_u2(data);
    vf magnitude = (vf)((bits & 0x7fff) << 13) * 0x1p112f;
    vi special = ((bits & 0x7c00) == 0x7c00) & 0x7f800000;
    return (vf)((vi)magnitude | special | (bits & 0x8000) << 16);
}

const struct ds_kernels ds_portable_kernels = DS_KERNEL_TABLE("portable");
