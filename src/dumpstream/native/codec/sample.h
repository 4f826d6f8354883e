/* Samples: what some elements of a block tell about all of them. Only integers are computed with,
 * so that every machine decides alike. */
#pragma once

#include "block.h"

/* Costs are in 1/256 of a bit. */
#define DS_COST 256u

struct ds_sample {
    unsigned taken; /* elements */
    unsigned zeros; /* of them */
    /* How often each byte comes in each place of the others; the sign is rotated to the lowest bit. */
    uint16_t bytes[8][256];
};

/* For floats, at least one. */
void ds_sample_take(enum ds_element element, const uint8_t *elements, size_t count, struct ds_sample *sample);

/* The exponents that codes can stand for: `base`, and those below it. */
struct ds_window {
    unsigned bits;
    unsigned base;
    uint32_t cost; /* in bits, of the codes and escapes of `total` exponents */
};

/* Returns the cheapest window for exponents, of which there are `total`. */
struct ds_window ds_window_choose(const uint16_t exponents[256], unsigned total);

/* What the sampled elements would cost, packed, or in planes. If `drop`, zeros are in a bitmap. The
 * planes that are worth a Huffman code have a bit in `places`. */
uint64_t ds_packed_cost(enum ds_element element, const struct ds_sample *sample, bool drop);
uint64_t ds_planes_cost(enum ds_element element, const struct ds_sample *sample, bool drop, unsigned *places);

/* Whether most of the words that come up in steps come again. */
bool ds_is_repetitive(const uint8_t *bytes, size_t length);

/* Returns the length of the bytes at the beginning that are repeated to the end, if it is at most `most`;
 * 0 if there are none. */
size_t ds_period(const uint8_t *bytes, size_t length, size_t most);

/* Does so with the rows of a matrix, which may be long: the period is a multiple of 2, and it may find none.
 */
size_t ds_row(const uint8_t *bytes, size_t length, size_t most);
