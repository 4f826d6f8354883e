#include "device/delivery.h"

#include <errno.h>
#include <stdlib.h>

#include "workload/random.h"

static void swap(uint32_t *one, uint32_t *other) {
    uint32_t kept = *one;
    *one = *other;
    *other = kept;
}

/* Some slice moves, if there are several. */
static void shuffle(uint32_t *order, uint64_t count, uint64_t key) {
    bool moved = false;
    for (uint64_t i = count - 1; i > 0; i--) {
        uint32_t kept = order[i];
        swap(&order[i], &order[below(mix(key, DRAW_SHUFFLE + i), i + 1)]);
        moved = moved || order[i] != kept;
    }
    if (!moved)
        swap(&order[0], &order[count - 1]);
}

static int plan_slices(struct delivery *delivery, uint64_t slice_bytes) {
    const struct dump_file *file = delivery->file;
    uint64_t slice = slice_bytes > file->header_bytes ? slice_bytes : file->header_bytes;
    uint64_t slices = (file->bytes + slice - 1) / slice, resent = UINT64_MAX;
    delivery->slice_bytes = slice;
    delivery->sent_bytes = file->bytes;
    if (dump_file_has(file, FAULT_TRUNCATED)) {
        delivery->sent_bytes = slices > 1 ? (slices - 1) * slice : file->bytes / 2;
        slices -= slices > 1;
    }
    if (dump_file_has(file, FAULT_RESEND_SLICE))
        resent = slices > 1 ? below(mix(file->key, DRAW_RESENT), slices - 1) : 0;
    delivery->last = slices - 1;
    /* CANN notices the end of a file by its promised length. A file with a null address never reaches it:
     * then the last chunk is marked only if it is shorter than a slice. */
    delivery->closed = !dump_file_has(file, FAULT_MISSING_LAST) && !dump_file_has(file, FAULT_TRUNCATED) &&
                       (!dump_file_has(file, FAULT_NULL_ADDRESS) || delivery->sent_bytes % slice != 0);
    delivery->order = malloc((slices + 1) * sizeof *delivery->order);
    if (delivery->order == NULL)
        return -ENOMEM;
    for (uint64_t number = 0; number < slices; number++) {
        delivery->order[delivery->chunks++] = (uint32_t)number;
        if (number == resent)
            delivery->order[delivery->chunks++] = (uint32_t)number;
    }
    if (dump_file_has(file, FAULT_SHUFFLE))
        shuffle(delivery->order, delivery->chunks, file->key);
    return 0;
}

int delivery_plan(struct delivery *delivery, const struct dump_file *file, uint64_t slice_bytes) {
    *delivery = (struct delivery){
        .file = file,
        .placed = dump_file_has(file, FAULT_OFFSETS) || dump_file_has(file, FAULT_SHUFFLE),
    };
    if (!file->text.selection)
        return plan_slices(delivery, slice_bytes);
    delivery->chunks = (file->data.tensors + file->text.rows - 1) / file->text.rows;
    return 0;
}

void delivery_free(struct delivery *delivery) {
    free(delivery->order);
}

/* Rows of text. Without the AICPU, the host adds the header. */
static struct slice text_slice(const struct dump_file *file, uint64_t chunk) {
    const struct stats_text *text = &file->text;
    uint64_t first = chunk * text->rows, left = file->data.tensors - first;
    size_t begin = text->by_aicpu ? 0 : text->end[first];
    size_t end = text->end[first + (left < text->rows ? left : text->rows)];
    return (struct slice){.offset = begin, .bytes = (uint32_t)(end - begin), .last = true};
}

struct slice delivery_slice(const struct delivery *delivery, uint64_t chunk) {
    if (delivery->order == NULL)
        return text_slice(delivery->file, chunk);
    uint64_t offset = delivery->order[chunk] * delivery->slice_bytes;
    uint64_t left = delivery->sent_bytes - offset;
    return (struct slice){
        .offset = offset,
        .bytes = (uint32_t)(left < delivery->slice_bytes ? left : delivery->slice_bytes),
        .last = delivery->closed && delivery->order[chunk] == delivery->last,
    };
}
