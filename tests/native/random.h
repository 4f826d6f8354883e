/* Numbers that look random and are the same in every run. */
#pragma once

#include <stdint.h>

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static inline uint32_t next_random(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}
