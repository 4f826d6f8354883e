/* Packing: exponents in a few bits against a base, for groups of 16-bit values. */
#pragma once

#include "block.h"

/* Writes `count` values of DS_HALF or DS_BFLOAT to `out`, which has room for them with
 * DS_GROUP_HEADER for each group that is begun. Returns how many bytes it wrote. */
size_t ds_pack_values(enum ds_element element, const uint8_t *values, size_t count, uint8_t *out);

/* The reverse. Returns how many bytes it has read of the `length` untrusted ones; 0 if they are wrong. */
size_t ds_unpack_values(enum ds_element element, const uint8_t *bytes, size_t length, size_t count,
                        uint8_t *values);
