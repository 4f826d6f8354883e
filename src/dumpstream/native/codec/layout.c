/* Where the tensors of a dump file are, and what their elements are. */
#include "dumpstream/codec.h"
#include "dumpstream/header.h"

#define PREFIX 8u

/* By number of CANN's data type; others are bytes. Complex numbers are pairs of floats. */
static const uint8_t elements[] = {
    [1] = DS_SINGLE,    [2] = DS_HALF,       [5] = DS_INTEGER_2,  [6] = DS_INTEGER_2,  [7] = DS_INTEGER_4,
    [8] = DS_INTEGER_8, [9] = DS_INTEGER_4,  [10] = DS_INTEGER_8, [12] = DS_DOUBLE,    [16] = DS_SINGLE,
    [17] = DS_DOUBLE,   [19] = DS_INTEGER_2, [20] = DS_INTEGER_4, [22] = DS_INTEGER_2, [23] = DS_INTEGER_8,
    [27] = DS_BFLOAT,   [32] = DS_HALF,
};

struct layout {
    struct ds_run *runs;
    size_t count, most;
    uint64_t end;
};

static void add(struct layout *layout, uint64_t size, uint32_t element) {
    uint64_t end = layout->end > UINT64_MAX - size ? UINT64_MAX : layout->end + size;
    if (end == layout->end)
        return;
    layout->end = end;
    /* Bytes behind bytes have no grid that could be missed; elements begin one. */
    if (element == DS_BYTES && layout->count && layout->count <= layout->most &&
        layout->runs[layout->count - 1].element == DS_BYTES) {
        layout->runs[layout->count - 1].end = end;
        return;
    }
    if (layout->count < layout->most)
        layout->runs[layout->count] = (struct ds_run){end, element, 0};
    layout->count++;
}

/* Adds the segments of one kind. If `only_present`, tensors without an address have no bytes. */
static void add_segments(struct layout *layout, const uint8_t *message, size_t length,
                         enum ds_message_kind kind, bool only_present) {
    struct ds_dump_data data;
    struct ds_entry entry;
    ds_dump_data_begin(&data, message, length);
    while (ds_dump_data_next(&data, &entry)) {
        const struct ds_segment *segment = &entry.segment;
        if (entry.kind < DS_ENTRY_INPUT || segment->kind != kind)
            continue;
        const bool is_tensor = kind == DS_INPUT || kind == DS_OUTPUT;
        if (is_tensor && only_present && !segment->address)
            continue;
        uint32_t type = (uint32_t)segment->data_type;
        add(layout, segment->size, is_tensor && type < sizeof elements ? elements[type] : DS_BYTES);
    }
}

size_t ds_layout_read(const uint8_t *bytes, size_t length, struct ds_run *runs, size_t most) {
    struct ds_header header;
    if (ds_header_read(bytes, length, &header) != DS_HEADER_WHOLE)
        return 0;
    uint64_t message = 0;
    for (unsigned i = 0; i < PREFIX; i++)
        message |= (uint64_t)bytes[i] << (8 * i);
    struct layout layout = {.runs = runs, .most = most};
    add(&layout, PREFIX + message, DS_BYTES);
    for (enum ds_message_kind kind = DS_INPUT; kind <= DS_SPACE; kind++)
        add_segments(&layout, bytes + PREFIX, (size_t)message, kind, header.present != header.total);
    return layout.count;
}
