/* Counting by value. Neighbours are counted in different tables: the second of two
 * additions to one counter would wait for the first. */
#include "element.h"

void ds_count_bytes(uint64_t counters[DS_COUNTER_TABLES][256], const uint8_t *data, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t word = DS_LOAD(uint64_t, data + i);
        for (int table = 0; table < 8; table++)
            counters[table][word >> 8 * table & 0xff]++;
    }
    for (; i < count; i++)
        counters[0][data[i]]++;
}

void ds_count_bits6(uint64_t counters[DS_COUNTER_TABLES][256], const uint8_t *data, size_t count) {
    for (; count >= 4; count -= 4, data += 3) {
        uint32_t group = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16;
        for (int code = 0; code < 4; code++)
            counters[code][group >> 6 * code & 63]++;
    }
    for (size_t bit = 0; bit < count * 6; bit += 6) {
        uint32_t pair = data[bit / 8];
        if (bit % 8 > 2)
            pair |= (uint32_t)data[bit / 8 + 1] << 8;
        counters[0][pair >> bit % 8 & 63]++;
    }
}

/* The exponent field. That of an 8-byte float gets the bias and the range of a 4-byte float. */
DS_INLINE size_t exponent_of(enum ds_kind kind, const uint8_t *data) {
    switch (kind) {
    case DS_F8: {
        int field = DS_LOAD(uint64_t, data) >> 52 & 0x7ff;
        int exponent = field - 1023 + 127;
        return field == 0x7ff ? 255 : exponent < 0 ? 0 : exponent > 254 ? 254 : (size_t)exponent;
    }
    case DS_F4:
        return DS_LOAD(uint32_t, data) >> 23 & 0xff;
    case DS_F2:
        return DS_LOAD(uint16_t, data) >> 10 & 31;
    default:
        return DS_LOAD(uint16_t, data) >> 7 & 0xff;
    }
}

DS_INLINE void count_exponents(uint64_t counters[DS_COUNTER_TABLES][256], enum ds_kind kind,
                               const uint8_t *data, size_t count) {
    size_t width = ds_width(kind), i = 0;
    for (; i + DS_COUNTER_TABLES <= count; i += DS_COUNTER_TABLES)
        for (size_t table = 0; table < DS_COUNTER_TABLES; table++)
            counters[table][exponent_of(kind, data + (i + table) * width)]++;
    for (; i < count; i++)
        counters[0][exponent_of(kind, data + i * width)]++;
}

void ds_count_exponents(uint64_t counters[DS_COUNTER_TABLES][256], enum ds_kind kind, const uint8_t *data,
                        size_t count) {
    if (kind == DS_F8)
        count_exponents(counters, DS_F8, data, count);
    else if (kind == DS_F4)
        count_exponents(counters, DS_F4, data, count);
    else if (kind == DS_F2)
        count_exponents(counters, DS_F2, data, count);
    else
        count_exponents(counters, DS_BF16, data, count);
}
