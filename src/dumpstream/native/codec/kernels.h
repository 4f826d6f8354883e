/* Kernels: the loops over elements. All sets of kernels give the same bytes. */
#pragma once

#include "block.h"

struct ds_codec_kernels {
    const char *name;

    /* Packs strips of 16-bit values of `element` (DS_HALF or DS_BFLOAT) into residues and codes of
     * `bits` against `base`. Returns how many exponents it wrote to `escapes`, which has room for
     * one per value and 8 more. */
    size_t (*pack)(enum ds_element element, const uint8_t *values, size_t strips, unsigned bits,
                   unsigned base, uint8_t *residues, uint8_t *codes, uint8_t *escapes);
    /* The reverse. Returns how many of the `count` escapes it needed, which may be more than that:
     * the values are wrong then. */
    size_t (*unpack)(enum ds_element element, const uint8_t *residues, const uint8_t *codes,
                     const uint8_t *escapes, size_t count, size_t strips, unsigned bits, unsigned base,
                     uint8_t *values);

    /* Moves elements of 4 bytes to their low and high halves, and back. */
    void (*halve)(const uint8_t *elements, size_t count, uint8_t *low, uint8_t *high);
    void (*join)(const uint8_t *low, const uint8_t *high, size_t count, uint8_t *elements);

    /* Moves elements of `width` bytes to as many planes of bytes, each `step` behind the one before; and
     * back. */
    void (*split)(const uint8_t *elements, size_t count, unsigned width, unsigned flags, size_t step,
                  uint8_t *planes);
    void (*merge)(const uint8_t *const planes[8], size_t count, unsigned width, unsigned flags,
                  uint8_t *elements);

    /* Writes a bitmap of the elements that are not 0, and these elements, for which `kept` has room
     * with 16 bytes more; returns how many there are. */
    size_t (*drop_zeros)(const uint8_t *elements, size_t count, unsigned width, uint8_t *bitmap,
                         uint8_t *kept);
    /* The reverse. Returns how many of the `most` elements it needed, which may be more than that:
     * the elements are wrong then. */
    size_t (*insert_zeros)(const uint8_t *bitmap, const uint8_t *kept, size_t most, size_t count,
                           unsigned width, uint8_t *elements);

    uint32_t (*crc32)(uint32_t crc, const uint8_t *bytes, size_t length);
};

extern const struct ds_codec_kernels ds_codec_portable;
#if defined(__x86_64__)
extern const struct ds_codec_kernels ds_codec_avx2, ds_codec_avx2_wide;
#elif defined(__aarch64__)
extern const struct ds_codec_kernels ds_codec_neon;
#endif

/* Those in use. */
const struct ds_codec_kernels *ds_codec_kernels(void);

/* For machines without an instruction for it. */
uint32_t ds_crc32_portable(uint32_t crc, const uint8_t *bytes, size_t length);

/* By a mask with a bit for each element: how many bits it has; the places of the bytes of these elements, to
 * keep them; and the reverse, to spread them, where the bytes of others have no place. The elements of the
 * tables have 1, 2 and 4 bytes. Made before kernels are used. */
struct ds_places {
    uint8_t count[256];
    uint8_t keep_1[256][8], spread_1[256][8];
    uint8_t keep_2[256][16], spread_2[256][16];
    uint8_t keep_4[16][16], spread_4[16][16];
};
extern struct ds_places ds_places;
