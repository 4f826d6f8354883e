#include <stdlib.h>

#include "kernels.h"
#include "packing.h"
#include "zstd.h"

struct ds_decoder {
    void *zstd;
    uint8_t kept[DS_BLOCK_MOST];
    uint8_t high[DS_BLOCK_MOST / 2];
    uint8_t planes[DS_BLOCK_MOST];
};

struct ds_decoder *ds_decoder_new(void) {
    struct ds_decoder *decoder = malloc(sizeof *decoder);
    if (decoder)
        decoder->zstd = ds_zstd_decompressor();
    return decoder;
}

void ds_decoder_free(struct ds_decoder *decoder) {
    if (decoder)
        ds_zstd_free_decompressor(decoder->zstd);
    free(decoder);
}

/* Returns what is wrong with it, or NULL. */
static const char *read_header(const uint8_t *bytes, struct ds_block_header *header) {
    if (ds_load_32(bytes) != DS_BLOCK_MAGIC)
        return "no block begins here";
    *header = (struct ds_block_header){.kind = bytes[4],
                                       .element = bytes[5],
                                       .flags = bytes[6],
                                       .raw = ds_load_32(bytes + 8),
                                       .stored = ds_load_32(bytes + 12),
                                       .crc = ds_load_32(bytes + 16)};
    const bool has_elements = header->kind == DS_BLOCK_PACKED || header->kind == DS_BLOCK_PLANES;
    if (header->kind > DS_BLOCK_REPEATED || header->element >= DS_ELEMENTS || bytes[7] ||
        (!has_elements && (header->element || header->flags)))
        return "a block is of a kind that this version does not know";
    if (header->raw > DS_BLOCK_MOST || header->stored > DS_PAYLOAD_MOST(header->raw))
        return "a block is too long";
    return NULL;
}

/* A payload that is being read. */
struct payload {
    const uint8_t *at;
    size_t left;
};

static const uint8_t *take(struct payload *payload, size_t length) {
    if (length > payload->left)
        return NULL;
    const uint8_t *taken = payload->at;
    payload->at += length;
    payload->left -= length;
    return taken;
}

/* Each function below returns whether the payload, or its part, is right. */

static bool decode_packed(struct ds_decoder *decoder, enum ds_element element, size_t count,
                          struct payload *payload, uint8_t *out) {
    const bool has_halves = element == DS_SINGLE;
    if (element != DS_HALF && element != DS_BFLOAT && element != DS_SINGLE)
        return false;
    const uint8_t *low = has_halves ? take(payload, 2 * count) : NULL;
    if (has_halves && !low)
        return false;
    size_t taken = ds_unpack_values(has_halves ? DS_BFLOAT : element, payload->at, payload->left, count,
                                    has_halves ? decoder->high : out);
    if (has_halves)
        ds_codec_kernels()->join(low, decoder->high, count, out);
    return (taken || !count) && take(payload, taken) && !payload->left;
}

static bool decode_planes(struct ds_decoder *decoder, enum ds_element element, unsigned flags, size_t count,
                          struct payload *payload, uint8_t *out) {
    const unsigned width = ds_widths[element];
    const uint8_t *planes[8] = {0};
    if (width == 1 || (flags & DS_ROTATED && flags & DS_DELTAS))
        return false;
    for (unsigned p = 0; p < width; p++) {
        const uint8_t *length = take(payload, 4);
        size_t stored = length ? ds_load_32(length) : 0;
        planes[p] = length ? take(payload, stored) : NULL;
        if (!planes[p] || stored > count)
            return false;
        if (stored < count) {
            uint8_t *plane = decoder->planes + p * count;
            if (!ds_zstd_decompress(decoder->zstd, planes[p], stored, plane, count))
                return false;
            planes[p] = plane;
        }
    }
    ds_codec_kernels()->merge(planes, count, width, flags, out);
    return !payload->left;
}

static bool decode_elements(struct ds_decoder *decoder, const struct ds_block_header *header,
                            struct payload payload, uint8_t *out) {
    const unsigned width = ds_widths[header->element], drop = header->flags & DS_WITHOUT_ZEROS;
    const size_t elements = header->raw / width;
    const unsigned known = DS_WITHOUT_ZEROS | (header->kind == DS_BLOCK_PLANES ? DS_ROTATED | DS_DELTAS : 0);
    if (header->raw % width || width == 1 || header->flags & ~known)
        return false;
    size_t count = elements;
    const uint8_t *bitmap = NULL;
    if (drop) {
        const uint8_t *length = take(&payload, 4);
        bitmap = take(&payload, ds_bitmap_bytes(elements));
        if (!length || !bitmap || ds_load_32(length) > elements)
            return false;
        count = ds_load_32(length);
    }
    uint8_t *kept = drop ? decoder->kept : out;
    bool is_right = header->kind == DS_BLOCK_PACKED
                        ? decode_packed(decoder, header->element, count, &payload, kept)
                        : decode_planes(decoder, header->element, header->flags, count, &payload, kept);
    if (is_right && drop)
        is_right = ds_codec_kernels()->insert_zeros(bitmap, kept, count, elements, width, out) == count;
    return is_right;
}

/* Fills `out` with the bytes, again and again; what is there is copied, twice as much each time. */
static void repeat(const uint8_t *bytes, size_t length, uint8_t *out, size_t room) {
    memcpy(out, bytes, length);
    while (length < room) {
        size_t some = length < room - length ? length : room - length;
        memcpy(out + length, out, some);
        length += some;
    }
}

static const char *decode_block(struct ds_decoder *decoder, const struct ds_block_header *header,
                                const uint8_t *bytes, uint8_t *out) {
    const char *const wrong = "a block is damaged";
    switch (header->kind) {
    case DS_BLOCK_RAW:
        if (header->stored != header->raw)
            return wrong;
        memcpy(out, bytes, header->raw);
        break;
    case DS_BLOCK_ZSTD:
        if (!ds_zstd_decompress(decoder->zstd, bytes, header->stored, out, header->raw))
            return decoder->zstd ? wrong : "a block needs libzstd, which this machine does not have";
        break;
    case DS_BLOCK_REPEATED:
        if (!header->stored || header->stored > header->raw)
            return wrong;
        repeat(bytes, header->stored, out, header->raw);
        break;
    default:
        if (!decode_elements(decoder, header, (struct payload){bytes, header->stored}, out))
            return wrong;
    }
    return ds_crc32(out, header->raw) == header->crc ? NULL : "a block does not match its checksum";
}

struct ds_decoded ds_decode(struct ds_decoder *decoder, const uint8_t *bytes, size_t length, uint8_t *out,
                            size_t room) {
    struct ds_decoded done = {.need = DS_BLOCK_HEADER};
    while (length - done.taken >= DS_BLOCK_HEADER) {
        struct ds_block_header header = {0};
        const uint8_t *at = bytes + done.taken;
        done.fault = read_header(at, &header);
        done.need = DS_BLOCK_HEADER + (size_t)header.stored;
        if (done.fault || length - done.taken < done.need)
            return done;
        if (header.raw > room - done.made) {
            done.need = 0;
            return done;
        }
        done.fault = decode_block(decoder, &header, at + DS_BLOCK_HEADER, out + done.made);
        if (done.fault)
            return done;
        done.taken += done.need;
        done.made += header.raw;
        done.need = DS_BLOCK_HEADER;
    }
    return done;
}
