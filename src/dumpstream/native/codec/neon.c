/* The kernels for aarch64, whose checksum needs the CRC extension. */
#include <arm_neon.h>
#include <sys/auxv.h>

#define DS_SHUFFLE_8(bytes, places, out) vst1_u8(out, vtbl1_u8(vld1_u8(bytes), vld1_u8(places)))
#define DS_SHUFFLE_16(bytes, places, out)                                                                    \
    vst1q_u8((uint8_t *)(out), vqtbl1q_u8(vld1q_u8((const uint8_t *)(bytes)), vld1q_u8(places)))

#include "elements.h"

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1u << 7)
#endif

__attribute__((target("+crc"))) static uint32_t crc32_by_words(uint32_t crc, const uint8_t *bytes,
                                                               size_t length) {
    crc = ~crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        __asm__("crc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    return ds_crc32_portable(~crc, bytes, length);
}

static uint32_t crc32(uint32_t crc, const uint8_t *bytes, size_t length) {
    if (getauxval(AT_HWCAP) & HWCAP_CRC32)
        return crc32_by_words(crc, bytes, length);
    return ds_crc32_portable(crc, bytes, length);
}

DS_CODEC_KERNELS(neon, crc32);
