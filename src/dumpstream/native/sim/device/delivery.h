/* The chunks in which a file leaves the device: their order and their marks. */
#pragma once

#include "device/dumpfile.h"

struct slice {
    uint64_t offset;
    uint32_t bytes;
    bool last;
};

struct delivery {
    const struct dump_file *file;
    uint64_t chunks; /* one for each slice, and one more if a slice comes twice */
    bool placed;     /* chunks carry their offsets */

    uint64_t slice_bytes;
    uint64_t sent_bytes;
    uint64_t last;   /* the number of the slice that ends the file, ... */
    bool closed;     /* ... which is marked last */
    uint32_t *order; /* slice numbers; NULL for text */
};

/* Returns 0 or -ENOMEM. */
int delivery_plan(struct delivery *delivery, const struct dump_file *file, uint64_t slice_bytes);
void delivery_free(struct delivery *delivery);

/* The chunk with this number, in order of delivery. */
struct slice delivery_slice(const struct delivery *delivery, uint64_t chunk);
