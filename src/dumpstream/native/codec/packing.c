#include "packing.h"

#include "kernels.h"
#include "sample.h"

#define SAMPLED 256u

static unsigned exponent_at(enum ds_element element, const uint8_t *value) {
    uint16_t bits;
    memcpy(&bits, value, sizeof bits);
    return element == DS_HALF ? bits >> 10 & 31 : bits >> 7 & 255;
}

static struct ds_window choose(enum ds_element element, const uint8_t *values, size_t count) {
    /* Exponents are alike, and a counter that was just added to is not ready to be added to again. */
    enum { COUNTERS = 4 };
    uint8_t counted[COUNTERS][256] = {0};
    uint16_t exponents[256];
    const size_t step = count / SAMPLED;
    size_t beyond = 0; /* the place in a step, a different one each time */
    for (size_t i = 0; i < SAMPLED; i++) {
        counted[i % COUNTERS][exponent_at(element, values + 2 * (i * step + beyond))]++;
        beyond = beyond + 1 < step ? beyond + 1 : 0;
    }
    for (unsigned e = 0; e < 256; e++)
        exponents[e] = (uint16_t)(counted[0][e] + counted[1][e] + counted[2][e] + counted[3][e]);
    return ds_window_choose(exponents, SAMPLED);
}

static size_t pack_group(enum ds_element element, const uint8_t *values, size_t count, uint8_t *out) {
    const struct ds_codec_kernels *kernels = ds_codec_kernels();
    const struct ds_window window = choose(element, values, count);
    uint8_t escapes[DS_GROUP_VALUES + 8];
    const size_t length = ds_packed_bytes(element, count, window.bits);
    if (window.cost < SAMPLED * (element == DS_HALF ? 5 : 8)) {
        uint8_t *residues = out + DS_GROUP_HEADER, *codes = residues + ds_packed_bytes(element, count, 0);
        size_t escaped = kernels->pack(element, values, count / DS_STRIP, window.bits, window.base, residues,
                                       codes, escapes);
        if (length + escaped < 2 * count) {
            ds_store_32(out, window.bits | window.base << 8 | (uint32_t)escaped << 16);
            memcpy(out + DS_GROUP_HEADER + length, escapes, escaped);
            return DS_GROUP_HEADER + length + escaped;
        }
    }
    ds_store_32(out, 0);
    memcpy(out + DS_GROUP_HEADER, values, 2 * count);
    return DS_GROUP_HEADER + 2 * count;
}

size_t ds_pack_values(enum ds_element element, const uint8_t *values, size_t count, uint8_t *out) {
    const uint8_t *const first = out;
    while (count >= DS_STRIP) {
        size_t some = count < DS_GROUP_VALUES ? count / DS_STRIP * DS_STRIP : DS_GROUP_VALUES;
        out += pack_group(element, values, some, out);
        values += 2 * some;
        count -= some;
    }
    memcpy(out, values, 2 * count);
    return (size_t)(out - first) + 2 * count;
}

static size_t unpack_group(enum ds_element element, const uint8_t *bytes, size_t length, size_t count,
                           uint8_t *values) {
    if (length < DS_GROUP_HEADER)
        return 0;
    const uint32_t header = ds_load_32(bytes);
    const unsigned bits = header & 255, base = header >> 8 & 255;
    const size_t escapes = header >> 16;
    size_t need = DS_GROUP_HEADER + (bits ? ds_packed_bytes(element, count, bits) + escapes : 2 * count);
    if (need > length || bits == 1 || bits > DS_MOST_BITS)
        return 0;
    if (!bits) {
        memcpy(values, bytes + DS_GROUP_HEADER, 2 * count);
        return header ? 0 : need;
    }
    const uint8_t *residues = bytes + DS_GROUP_HEADER;
    const uint8_t *codes = residues + ds_packed_bytes(element, count, 0);
    size_t used = ds_codec_kernels()->unpack(element, residues, codes, bytes + need - escapes, escapes,
                                             count / DS_STRIP, bits, base, values);
    return used == escapes ? need : 0;
}

size_t ds_unpack_values(enum ds_element element, const uint8_t *bytes, size_t length, size_t count,
                        uint8_t *values) {
    size_t at = 0;
    while (count >= DS_STRIP) {
        size_t some = count < DS_GROUP_VALUES ? count / DS_STRIP * DS_STRIP : DS_GROUP_VALUES;
        size_t taken = unpack_group(element, bytes + at, length - at, some, values);
        if (!taken)
            return 0;
        at += taken;
        values += 2 * some;
        count -= some;
    }
    if (2 * count > length - at)
        return 0;
    memcpy(values, bytes + at, 2 * count);
    return at + 2 * count;
}
