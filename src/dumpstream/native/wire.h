/* The wire format of protobuf, read from untrusted bytes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Unread bytes. `cut` is set if they end inside a field, `bad` if they cannot be
 * protobuf whatever follows. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool cut;
    bool bad;
};

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t value;       /* a varint, or the length of the bytes */
    const uint8_t *bytes; /* WIRE_BYTES */
};

static inline uint64_t read_varint(struct cursor *in) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (in->at == in->end) {
            in->cut = true;
            return 0;
        }
        uint8_t byte = *in->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    in->bad = true;
    return 0;
}

static inline void skip(struct cursor *in, uint64_t count) {
    if ((uint64_t)(in->end - in->at) < count)
        in->cut = true;
    else
        in->at += count;
}

/* The bytes of a field that is a message. */
static inline struct cursor inside(const struct field *field) {
    return (struct cursor){.at = field->bytes, .end = field->bytes + field->value};
}

/* Reads one field; false at the end, or with `cut` or `bad` set. */
static inline bool next_field(struct cursor *in, struct field *field) {
    if (in->at == in->end)
        return false;
    uint64_t key = read_varint(in);
    if (in->cut || in->bad)
        return false;
    if (key >> 3 == 0 || key >> 3 >= 1u << 29) {
        in->bad = true;
        return false;
    }
    field->number = (uint32_t)(key >> 3);
    field->wire = (enum wire)(key & 7);
    switch (field->wire) {
    case WIRE_VARINT:
        field->value = read_varint(in);
        break;
    case WIRE_FIXED64:
        skip(in, 8);
        break;
    case WIRE_FIXED32:
        skip(in, 4);
        break;
    case WIRE_BYTES:
        field->value = read_varint(in);
        field->bytes = in->at;
        if (!in->cut && !in->bad)
            skip(in, field->value);
        break;
    default:
        in->bad = true;
    }
    return !in->cut && !in->bad;
}
