/* The operations of aarch64. */
#pragma once

#define DS_VECTOR_BYTES 16
#include <arm_neon.h>

#include "vectors.h"

DS_OF_TWO(vf, max_f, (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b))
DS_OF_TWO(vf, min_f, (vf)vminq_f32((float32x4_t)a, (float32x4_t)b))
DS_OF_TWO(vd, max_d, (vd)vmaxq_f64((float64x2_t)a, (float64x2_t)b))
DS_OF_TWO(vd, min_d, (vd)vminq_f64((float64x2_t)a, (float64x2_t)b))
DS_OF_TWO(vi, max_i, (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b))
DS_OF_TWO(vi, min_i, (vi)vminq_s32((int32x4_t)a, (int32x4_t)b))
DS_OF_TWO(vb, max_b, (vb)vmaxq_s8((int8x16_t)a, (int8x16_t)b))
DS_OF_TWO(vb, min_b, (vb)vminq_s8((int8x16_t)a, (int8x16_t)b))

DS_INLINE vd add_product_f(vd a, vd b, vd c) {
    return (vd)vfmaq_f64((float64x2_t)a, (float64x2_t)b, (float64x2_t)c);
}

DS_OF_ONE(vd, low_f, vf, (vd)vcvt_f64_f32(vget_low_f32((float32x4_t)x)))
DS_OF_ONE(vd, high_f, vf, (vd)vcvt_high_f64_f32((float32x4_t)x))
DS_OF_ONE(vd, low_i, vi, (vd)vcvtq_f64_s64(vmovl_s32(vget_low_s32((int32x4_t)x))))
DS_OF_ONE(vd, high_i, vi, (vd)vcvtq_f64_s64(vmovl_high_s32((int32x4_t)x)))

DS_INLINE vf load_f2(const uint8_t *data) {
    return (vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(data)));
}

DS_INLINE vi load_i2(const uint8_t *data) {
    return (vi)vmovl_s16(vreinterpret_s16_u8(vld1_u8(data)));
}

DS_INLINE vi load_u2(const uint8_t *data) {
    return (vi)vmovl_u16(vreinterpret_u16_u8(vld1_u8(data)));
}
