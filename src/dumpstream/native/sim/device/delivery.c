#include "device/delivery.h"

#include <errno.h>
#include <stdlib.h>

#include "workload/random.h"

static uint64_t ascending(const struct delivery *delivery, uint64_t chunk) {
    return chunk > delivery->resent ? chunk - 1 : chunk;
}

static int shuffle(struct delivery *delivery, uint64_t key) {
    uint32_t *order = malloc(delivery->chunks * sizeof *order);
    bool moved = false;
    if (order == NULL)
        return -ENOMEM;
    for (uint64_t i = 0; i < delivery->chunks; i++)
        order[i] = (uint32_t)ascending(delivery, i);
    for (uint64_t i = delivery->chunks - 1; i > 0; i--) {
        uint64_t other = below(mix(key, DRAW_SHUFFLE + i), i + 1);
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
        moved = moved || order[i] != kept;
    }
    if (!moved && delivery->chunks > 1) {
        uint32_t kept = order[0];
        order[0] = order[delivery->chunks - 1];
        order[delivery->chunks - 1] = kept;
    }
    delivery->order = order;
    return 0;
}

/* CANN notices the end of a file by its promised length. A file with a null address never
 * reaches it: then the last chunk is marked only if it is shorter than a slice. */
static bool is_closed(const struct dump_file *file, const struct delivery *delivery) {
    if (dump_file_has(file, FAULT_MISSING_LAST) || dump_file_has(file, FAULT_TRUNCATED))
        return false;
    return !dump_file_has(file, FAULT_NULL_ADDRESS) || delivery->sent_bytes % delivery->slice_bytes != 0;
}

int delivery_plan(struct delivery *delivery, const struct dump_file *file, uint64_t slice_bytes) {
    uint64_t slice = slice_bytes > file->header_bytes ? slice_bytes : file->header_bytes;
    uint64_t slices = (file->bytes + slice - 1) / slice;
    *delivery = (struct delivery){
        .placed = dump_file_has(file, FAULT_OFFSETS) || dump_file_has(file, FAULT_SHUFFLE),
        .slice_bytes = slice,
        .sent_bytes = file->bytes,
        .slices = slices,
        .resent = slices,
    };
    if (dump_file_has(file, FAULT_TRUNCATED)) {
        delivery->slices = slices > 1 ? slices - 1 : 1;
        delivery->sent_bytes = slices > 1 ? (slices - 1) * slice : file->bytes / 2;
        delivery->resent = delivery->slices;
    }
    if (dump_file_has(file, FAULT_RESEND_SLICE))
        delivery->resent = slices > 1 ? below(mix(file->key, DRAW_RESENT), slices - 1) : 0;
    delivery->chunks = delivery->slices + (delivery->resent < delivery->slices);
    delivery->closed = is_closed(file, delivery);
    return dump_file_has(file, FAULT_SHUFFLE) ? shuffle(delivery, file->key) : 0;
}

void delivery_free(struct delivery *delivery) {
    free(delivery->order);
}

struct slice delivery_slice(const struct delivery *delivery, uint64_t chunk) {
    uint64_t number = delivery->order ? delivery->order[chunk] : ascending(delivery, chunk);
    uint64_t offset = number * delivery->slice_bytes;
    uint64_t left = delivery->sent_bytes - offset;
    return (struct slice){
        .offset = offset,
        .bytes = (uint32_t)(left < delivery->slice_bytes ? left : delivery->slice_bytes),
        .last = delivery->closed && number == delivery->slices - 1,
    };
}
