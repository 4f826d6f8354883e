#include "sample.h"

#define MOST 512u
#define ESCAPE_BITS 8u

static inline __attribute__((always_inline)) void take(const uint8_t *elements, size_t count, unsigned width,
                                                       struct ds_sample *sample) {
    const uint32_t step = (uint32_t)(count / sample->taken);
    for (uint32_t i = 0; i < sample->taken; i++) {
        /* Not at equal distances, which could be those of the rows of a matrix. */
        size_t at = (size_t)i * step + (uint32_t)((i * 2654435761u >> 16) * (uint64_t)step >> 16);
        uint64_t value = 0;
        memcpy(&value, elements + at * width, width);
        if (!value) {
            sample->zeros++;
            continue;
        }
        value = value << 1 | value >> (8 * width - 1);
        for (unsigned place = 0; place < width; place++)
            sample->bytes[place][value >> 8 * place & 255]++;
    }
}

void ds_sample_take(enum ds_element element, const uint8_t *elements, size_t count,
                    struct ds_sample *sample) {
    memset(sample, 0, sizeof *sample);
    sample->taken = count < MOST ? (unsigned)count : MOST;
    if (ds_widths[element] == 2)
        take(elements, count, 2, sample);
    else if (ds_widths[element] == 4)
        take(elements, count, 4, sample);
    else
        take(elements, count, 8, sample);
}

struct ds_window ds_window_choose(const uint16_t exponents[256], unsigned total) {
    struct ds_window best = {.bits = 2, .base = 255, .cost = UINT32_MAX};
    unsigned low = 0, high = 255, below[257];
    while (low < 255 && !exponents[low])
        low++;
    while (high > low && !exponents[high])
        high--;
    below[low] = 0; /* counts below an exponent */
    for (unsigned e = low; e <= high; e++)
        below[e + 1] = below[e] + exponents[e];
    for (unsigned bits = 2; bits <= DS_MOST_BITS; bits++) {
        unsigned size = (1u << bits) - 1;
        for (unsigned base = high;; base--) {
            unsigned end = base + 1 < low + size ? low : base + 1 - size;
            uint32_t cost = bits * total + ESCAPE_BITS * (total - (below[base + 1] - below[end]));
            if (cost < best.cost)
                best = (struct ds_window){bits, base, cost};
            if (end == low)
                break;
        }
    }
    return best;
}

/* The logarithm to the base 2, in 1/256; of a number from 1 to 65535. */
static uint32_t log_2(uint32_t number) {
    unsigned whole = 31 - (unsigned)__builtin_clz(number);
    uint32_t part = (uint32_t)((uint64_t)number << 16 >> whole) - (1u << 16);
    /* A straight line between powers of 2, and a parabola for what it is too low. */
    uint32_t bent = (uint32_t)((uint64_t)part * ((1u << 16) - part) >> 16);
    return (whole << 8) + (part >> 8) + (bent * 88 >> 16);
}

/* What `total` bytes cost that come so often; more of some are 0. Corrected for the bytes that are
 * too rare to be in a sample (Miller and Madow). */
static uint64_t entropy(const uint16_t counts[256], unsigned total, unsigned more_zeros) {
    uint64_t sum = 0;
    unsigned different = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t count = counts[byte] + (byte ? 0 : more_zeros);
        if (count) {
            sum += (uint64_t)count * log_2(count);
            different++;
        }
    }
    total += more_zeros;
    if (!different)
        return 0;
    uint64_t cost = (uint64_t)total * log_2(total) - sum + (different - 1) * DS_COST * 1443u / 2000u;
    /* A Huffman code takes a little more, and at least a bit unless there is only one. */
    cost += cost / 64;
    uint64_t least = different > 1 ? (uint64_t)total * DS_COST : 0, most = (uint64_t)total * 8 * DS_COST;
    return cost < least ? least : cost > most ? most : cost;
}

uint64_t ds_packed_cost(enum ds_element element, const struct ds_sample *sample, bool drop) {
    const unsigned width = ds_widths[element], kept = sample->taken - sample->zeros;
    const unsigned fixed = 8 * width - (element == DS_HALF ? 5 : 8);
    uint16_t exponents[256] = {0};
    for (unsigned byte = 0; byte < 256; byte++)
        exponents[element == DS_HALF ? byte >> 3 : byte] += sample->bytes[width - 1][byte];
    if (!drop)
        exponents[0] = (uint16_t)(exponents[0] + sample->zeros);
    unsigned values = drop ? kept : sample->taken;
    uint64_t bits = (uint64_t)values * fixed + (values ? ds_window_choose(exponents, values).cost : 0);
    return (bits + (drop ? sample->taken : 0)) * DS_COST;
}

uint64_t ds_planes_cost(enum ds_element element, const struct ds_sample *sample, bool drop,
                        unsigned *places) {
    uint64_t cost = drop ? (uint64_t)sample->taken * DS_COST : 0;
    const unsigned kept = sample->taken - sample->zeros, zeros = drop ? 0 : sample->zeros;
    *places = 0;
    for (unsigned place = 0; place < ds_widths[element]; place++) {
        uint64_t of_place = entropy(sample->bytes[place], kept, zeros);
        const uint64_t as_is = (uint64_t)(kept + zeros) * DS_COST * 8;
        /* Coding takes longer than it is worth for a few percent of one plane. */
        const bool is_worth = of_place < as_is / 16 * 15;
        *places |= (unsigned)is_worth << place;
        cost += is_worth ? of_place : as_is;
    }
    return cost;
}

size_t ds_period(const uint8_t *bytes, size_t length, size_t most) {
    const size_t print = 16;
    if (!most || most + print > length)
        return 0;
    const uint8_t *again = memmem(bytes + 1, most + print - 1, bytes, print);
    size_t period = again ? (size_t)(again - bytes) : 0;
    return period && memcmp(bytes, bytes + period, length - period) == 0 ? period : 0;
}

bool ds_is_repetitive(const uint8_t *bytes, size_t length) {
    enum { SLOT_BITS = 11, STEP = 128 };
    uint32_t seen[1 << SLOT_BITS] = {0};
    unsigned repeated = 0, taken = 0;
    for (size_t at = 0; at + 8 <= length; at += STEP) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (!word)
            continue;
        word *= 0x9e3779b97f4a7c15u;
        uint32_t slot = (uint32_t)(word >> (64 - SLOT_BITS)), print = (uint32_t)(word >> 16) | 1;
        taken++;
        repeated += seen[slot] == print;
        seen[slot] = print;
    }
    return taken >= 16 && 2 * repeated > taken;
}

typedef uint16_t any_2 __attribute__((aligned(1), may_alias));

/* Returns the first of some neighbours that hardly come again by chance: two are different, and not 0. */
static size_t choose_anchor(const any_2 *value, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint16_t first = value[i] ? value[i] : value[i + 1];
        const uint16_t second = value[i + 2] ? value[i + 2] : value[i + 3];
        if (first && second && first != second)
            return i;
    }
    return count;
}

size_t ds_row(const uint8_t *bytes, size_t length, size_t most) {
    enum { TILE = 512, ANCHORS = 256, TRIES = 8, NEIGHBOURS = 4, BEGINNING = 512 };
    const any_2 *value = (const any_2 *)bytes;
    if (length < most + 2 * (ANCHORS + TILE + NEIGHBOURS))
        return 0;
    const size_t anchor = choose_anchor(value, ANCHORS), end = anchor + most / 2;
    const uint16_t a = value[anchor], b = value[anchor + 1], c = value[anchor + 2], d = value[anchor + 3];
    unsigned tries = anchor < ANCHORS ? 0 : TRIES;
    for (size_t i = anchor + 1; i < end && tries < TRIES; i += TILE) {
        uint16_t found = 0;
        for (size_t j = i; j < i + TILE; j++)
            found |=
                (uint16_t)((value[j] == a) & (value[j + 1] == b) & (value[j + 2] == c) & (value[j + 3] == d));
        for (size_t j = i; found && j < i + TILE && j <= end && tries < TRIES; j++) {
            const size_t row = 2 * (j - anchor);
            if (value[j] != a || value[j + 1] != b || value[j + 2] != c || value[j + 3] != d)
                continue;
            /* What agrees only here does so by chance; more than that is compared once. */
            if (memcmp(bytes, bytes + row, BEGINNING) == 0)
                return memcmp(bytes, bytes + row, length - row) == 0 ? row : 0;
            tries++;
        }
    }
    return 0;
}
