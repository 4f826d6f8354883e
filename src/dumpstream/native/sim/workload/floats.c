#include "workload/floats.h"

/* Tensors are aligned, so their elements are, too. */
void floats_read(enum dtype dtype, const uint8_t *bytes, size_t first, size_t count, float *restrict out) {
    const uint16_t *halves = (const uint16_t *)(const void *)bytes + first;
    if (dtype == DTYPE_FLOAT32)
        memcpy(out, bytes + first * sizeof *out, count * sizeof *out);
    else if (dtype == DTYPE_FLOAT16)
        for (size_t i = 0; i < count; i++)
            out[i] = float16_value(halves[i]);
    else if (dtype == DTYPE_FLOAT8_E4M3FN)
        for (size_t i = 0; i < count; i++)
            out[i] = e4m3_value(bytes[first + i]);
    else if (dtype == DTYPE_FLOAT8_E5M2)
        for (size_t i = 0; i < count; i++)
            out[i] = e5m2_value(bytes[first + i]);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = bfloat16_value(halves[i]);
}

void floats_write(enum dtype dtype, uint8_t *bytes, size_t first, size_t count,
                  const float *restrict values) {
    uint32_t *words = (uint32_t *)(void *)bytes + first;
    uint16_t *halves = (uint16_t *)(void *)bytes + first;
    if (dtype == DTYPE_FLOAT32) {
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = float_bits(values[i]);
            words[i] = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits;
        }
    } else if (dtype == DTYPE_FLOAT16) {
        for (size_t i = 0; i < count; i++)
            halves[i] = float16_bits(values[i]);
    } else if (dtype == DTYPE_FLOAT8_E4M3FN) {
        for (size_t i = 0; i < count; i++)
            bytes[first + i] = e4m3_bits(values[i]);
    } else if (dtype == DTYPE_FLOAT8_E5M2) {
        for (size_t i = 0; i < count; i++)
            bytes[first + i] = e5m2_bits(values[i]);
    } else {
        for (size_t i = 0; i < count; i++)
            halves[i] = bfloat16_bits(values[i]);
    }
}
