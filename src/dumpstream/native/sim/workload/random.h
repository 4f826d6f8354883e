/* Random numbers by position, without state: any part of a workload can be made on its own,
 * on any thread. */
#pragma once

#include <stdint.h>

/* Numbers that keep the sequences of one key apart. */
enum {
    DRAW_TIME = 1000,
    DRAW_MODEL,
    DRAW_OP,
    DRAW_STEP,
    DRAW_CLOCK,
    DRAW_ADDRESS,
    DRAW_DTYPE,
    DRAW_BYTES,
    DRAW_FLOW,
    DRAW_COLUMNS,
    DRAW_INPUT,
    DRAW_OPERAND,
    DRAW_SPLIT,
    DRAW_ROWS,
    DRAW_IN_PLACE,
    DRAW_CHAIN,
    DRAW_WEIGHT,
    DRAW_LOADER,
    DRAW_INJECTED,
    DRAW_RESENT = 2000,
    DRAW_SHUFFLE = 3000,
};

/* The n-th number of the sequence `key`. It can be a key itself. */
static inline uint64_t mix(uint64_t key, uint64_t n) {
    uint64_t z = key + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number in [0, 1). */
static inline double unit(uint64_t random) {
    return (double)(random >> 11) * 0x1p-53;
}

/* A number in [0, bound); bound is far below 2^64, so the bias does not matter. */
static inline uint64_t below(uint64_t random, uint64_t bound) {
    return random % bound;
}
