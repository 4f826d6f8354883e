/* The parts of a block, as docs/format.md has them. */
#pragma once

#include <string.h>

#include "dumpstream/codec.h"

#define DS_BLOCK_MAGIC 0xb1545344u /* in a dump file, this would be a header of more than 2 GiB */

enum ds_block_kind {
    DS_BLOCK_RAW,
    DS_BLOCK_ZSTD,
    DS_BLOCK_PACKED,
    DS_BLOCK_PLANES,
    DS_BLOCK_REPEATED, /* the payload again and again */
};

enum ds_block_flag {
    DS_WITHOUT_ZEROS = 1, /* elements that are 0 are in a bitmap, and not among the others */
    DS_ROTATED = 2,       /* the sign is the lowest bit of an element */
    DS_DELTAS = 4,        /* elements are differences */
};

struct ds_block_header {
    enum ds_block_kind kind;
    enum ds_element element;
    unsigned flags;
    uint32_t raw; /* bytes, before and after */
    uint32_t stored;
    uint32_t crc;
};

/* Values that are packed together: a strip shares the rows of bits, a group the base. */
#define DS_STRIP 256u
#define DS_GROUP_STRIPS 16u
#define DS_GROUP_VALUES (DS_STRIP * DS_GROUP_STRIPS)
#define DS_GROUP_HEADER 4u
/* The bits of a code; the largest code is an escape. */
#define DS_MOST_BITS 4u

static const uint8_t ds_widths[DS_ELEMENTS] = {1, 2, 2, 4, 8, 2, 4, 8};

static inline bool ds_is_float(enum ds_element element) {
    return element >= DS_HALF && element <= DS_DOUBLE;
}

/* The bytes of the bitmap of `count` elements. */
static inline size_t ds_bitmap_bytes(size_t count) {
    return (count + DS_STRIP - 1) / DS_STRIP * (DS_STRIP / 8);
}

/* The bytes of one value of a group, of which `bits` are a code. A value of half precision has 11
 * bits that are not exponent, others have 8. */
static inline size_t ds_packed_bytes(enum ds_element element, size_t values, unsigned bits) {
    return values * ((element == DS_HALF ? 11 : 8) + bits) / 8;
}

static inline uint32_t ds_load_32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void ds_store_32(uint8_t *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}
