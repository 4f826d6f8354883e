/* Kernels for aarch64. */
#define DS_VECTOR_BYTES 16
#include <arm_neon.h>

#include "lanes.h"

vf max_f(vf a, vf b) {
    return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}

vf min_f(vf a, vf b) {
    return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b);
}

vd max_d(vd a, vd b) {
    return (vd)vmaxq_f64((float64x2_t)a, (float64x2_t)b);
}

vd min_d(vd a, vd b) {
    return (vd)vminq_f64((float64x2_t)a, (float64x2_t)b);
}

vi max_i(vi a, vi b) {
    return (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}

vi min_i(vi a, vi b) {
    return (vi)vminq_s32((int32x4_t)a, (int32x4_t)b);
}

vb max_b(vb a, vb b) {
    return (vb)vmaxq_s8((int8x16_t)a, (int8x16_t)b);
}

vb min_b(vb a, vb b) {
    return (vb)vminq_s8((int8x16_t)a, (int8x16_t)b);
}

vd low_f(vf x) {
    return (vd)vcvt_f64_f32(vget_low_f32((float32x4_t)x));
}

vd high_f(vf x) {
    return (vd)vcvt_high_f64_f32((float32x4_t)x);
}

vd low_i(vi x) {
    return (vd)vcvtq_f64_s64(vmovl_s32(vget_low_s32((int32x4_t)x)));
}

vd high_i(vi x) {
    return (vd)vcvtq_f64_s64(vmovl_high_s32((int32x4_t)x));
}

vf load_f2(const uint8_t *data) {
    return (vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(data)));
}

vi load_i2(const uint8_t *data) {
    return (vi)vmovl_s16(vreinterpret_s16_u8(vld1_u8(data)));
}

vi load_u2(const uint8_t *data) {
    return (vi)vmovl_u16(vreinterpret_u16_u8(vld1_u8(data)));
}

const struct ds_kernels ds_neon_kernels = DS_KERNEL_TABLE("neon");
