#include "dumpstream/header.h"

#include "small_device.h"
#include "wire.h"

#define PREFIX 8u
#define MAX_MESSAGE ((uint64_t)1 << 31)

struct totals {
    uint64_t all;
    uint64_t absent; /* of tensors without an address */
    bool any_address;
    bool any_known;
};

static uint64_t add(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Adds up one input, output, buffer or workspace. */
static bool read_segment(const struct field *segment, uint32_t size_number, uint32_t address_number,
                         struct totals *totals) {
    struct cursor in = inside(segment);
    struct field field = {0};
    uint64_t size = 0, address = 0;
    while (next_field(&in, &field)) {
        if (field.wire != WIRE_VARINT)
            continue;
        if (field.number == size_number)
            size = field.value;
        else if (field.number == address_number)
            address = field.value;
    }
    if (in.cut || in.bad)
        return false;
    totals->all = add(totals->all, size);
    if (!address_number)
        return true;
    if (address)
        totals->any_address = true;
    else
        totals->absent = add(totals->absent, size);
    return true;
}

/* DumpData: 1 version, 2 dump_time, 3 output, 4 input, 5 buffer, 6 op_name,
 * 7 attr, 8 space, 9 dfx_message. Those that are segments have their size and, if they are
 * tensors, their address in the fields with these numbers. */
static const struct {
    uint8_t size, address;
} segments[10] = {[3] = {6, 9}, [4] = {5, 8}, [5] = {3, 0}, [8] = {3, 0}};

static bool read_known(const struct field *field, struct totals *totals) {
    if (field->number > 9 || field->wire != (field->number == 2 ? WIRE_VARINT : WIRE_BYTES))
        return true;
    totals->any_known = true;
    uint32_t size = segments[field->number].size, address = segments[field->number].address;
    return !size || read_segment(field, size, address, totals);
}

/* These two return whether the bytes can be the beginning of a header, or all of one if `whole`. */

static bool read_small(const uint8_t *bytes, size_t length, bool whole, struct totals *totals) {
    struct ds_dump_data message;
    struct ds_entry entry;
    if (!whole)
        return true;
    ds_dump_data_begin(&message, bytes, length);
    while (ds_dump_data_next(&message, &entry))
        totals->all = add(totals->all, entry.segment.size);
    return !message.fault;
}

static bool read_message(const uint8_t *bytes, size_t length, bool whole, struct totals *totals) {
    struct cursor in = {.at = bytes, .end = bytes + length};
    struct field field = {0};
    while (next_field(&in, &field)) {
        if (!read_known(&field, totals))
            return false;
    }
    return !in.bad && !(whole && (in.cut || !totals->any_known));
}

enum ds_header_state ds_header_read(const uint8_t *bytes, size_t length, struct ds_header *header) {
    header->total = header->present = 0;
    if (length < PREFIX)
        return DS_HEADER_PARTIAL;
    uint64_t message = 0;
    for (unsigned i = 0; i < PREFIX; i++)
        message |= (uint64_t)bytes[i] << (8 * i);
    if (message == 0 || message >= MAX_MESSAGE)
        return DS_HEADER_NONE;

    const bool whole = length - PREFIX >= message;
    const size_t there = whole ? (size_t)message : length - PREFIX;
    struct totals totals = {0};
    bool (*read)(const uint8_t *, size_t, bool, struct totals *) =
        is_small(bytes + PREFIX, there) ? read_small : read_message;
    if (!read(bytes + PREFIX, there, whole, &totals))
        return DS_HEADER_NONE;
    header->total = PREFIX + message;
    if (!whole)
        return DS_HEADER_PARTIAL;
    uint64_t absent = totals.any_address ? totals.absent : 0;
    header->present = add(header->total, totals.all - absent);
    header->total = add(header->total, totals.all);
    return DS_HEADER_WHOLE;
}
