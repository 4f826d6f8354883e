#include "dumpstream/tensor_rows.h"

#include "../plain_file.h"
#include "../room.h"
#include "kernels.h"

/* A plain file, as far as it has been read. */
struct file {
    struct ds_plain_file plain;
    uint64_t position;
};

void ds_tensor_rows_init(struct ds_tensor_rows *rows, const struct ds_reading *readings) {
    memset(rows, 0, offsetof(struct ds_tensor_rows, statistics));
    rows->readings = readings;
}

void ds_tensor_rows_free(struct ds_tensor_rows *rows) {
    free(rows->row);
    free(rows->shapes.dim);
    free(rows->original_shapes.dim);
}

/* Rows */

static const struct ds_reading *find_reading(const struct ds_tensor_rows *rows, int32_t data_type) {
    bool known = data_type >= 0 && data_type < DS_DATA_TYPES && rows->readings[data_type].known;
    return known ? &rows->readings[data_type] : NULL;
}

/* Measures the bytes of `segment`, which come next in the file. */
static bool measure(struct ds_tensor_rows *rows, struct file *file, const struct ds_segment *segment,
                    struct ds_tensor_row *row) {
    uint64_t elements;
    bool shaped;
    const struct ds_reading *reading = find_reading(rows, segment->data_type);
    if (!reading)
        return false;
    uint64_t element_bytes = DS_KIND[reading->kind].bits / 8 * reading->components;
    if (segment->size > file->plain.length - file->position ||
        !ds_count_elements(segment, element_bytes, &elements, &shaped))
        return false;
    row->stored = true;
    row->start = file->position;
    row->taken = elements * element_bytes;
    file->position += segment->size;
    ds_statistics_init(&rows->statistics, reading->kind, NULL, 0, DS_UNLIMITED, false);
    ds_statistics_update(&rows->statistics, file->plain.data + row->start, row->taken);
    ds_statistics_result(&rows->statistics, &row->summary, NULL);
    return true;
}

static int append_row(struct ds_tensor_rows *rows, struct file *file, const struct ds_segment *segment,
                      uint32_t index) {
    if (ds_make_room((void **)&rows->row, &rows->room, rows->count + 1, sizeof *rows->row) < 0)
        return -ENOMEM;
    struct ds_tensor_row *row = &rows->row[rows->count];
    memset(row, 0, sizeof *row);
    row->file = rows->files;
    row->size = segment->size;
    row->address = segment->address;
    row->io = segment->kind;
    row->index = index;
    row->data_type = segment->data_type;
    row->format = segment->format;
    row->dims = segment->shape.count;
    row->original_dims = segment->original_shape.count;
    row->op_name_start = file->plain.op_name.at ? (uint64_t)(file->plain.op_name.at - file->plain.data) : 0;
    row->op_name_length = file->plain.op_name.length;
    bool addressed = segment->kind == DS_INPUT || segment->kind == DS_OUTPUT;
    bool skipped = file->plain.skips_null && addressed && segment->address == 0;
    if (!skipped && !measure(rows, file, segment, row))
        return 0;
    rows->count++;
    if (ds_append_dims(&rows->shapes, &segment->shape) < 0)
        return -ENOMEM;
    return ds_append_dims(&rows->original_shapes, &segment->original_shape);
}

/* Segments of different kinds may come in any order; their bytes do not. */
static int append_kind(struct ds_tensor_rows *rows, struct file *file, enum ds_message_kind kind) {
    struct ds_dump_data message;
    struct ds_entry entry;
    uint32_t index = 0;
    ds_plain_file_begin(&file->plain, &message);
    while (index < file->plain.segments[kind] && ds_plain_file_next(&message, kind, &entry)) {
        int result = append_row(rows, file, &entry.segment, index++);
        if (result != 1)
            return result;
    }
    return 1;
}

static int append_file(struct ds_tensor_rows *rows, struct file *file, const uint8_t *data, size_t length) {
    if (!ds_plain_file_open(&file->plain, data, length))
        return 0;
    file->position = file->plain.header_bytes;
    for (enum ds_message_kind kind = DS_INPUT; kind < DS_DUMP_DATA; kind++) {
        int result = append_kind(rows, file, kind);
        if (result != 1)
            return result;
    }
    /* Both readers of the header must have found the same sizes. */
    return file->position == length;
}

int ds_tensor_rows_add(struct ds_tensor_rows *rows, const uint8_t *data, size_t length) {
    size_t count = rows->count, dims = rows->shapes.count, original_dims = rows->original_shapes.count;
    struct file file;
    int result = append_file(rows, &file, data, length);
    if (result != 1 || rows->count == count) {
        rows->count = count;
        rows->shapes.count = dims;
        rows->original_shapes.count = original_dims;
        result = result < 0 ? result : 0;
    }
    rows->files++;
    return result;
}

size_t ds_count_tensors(const uint8_t *data, size_t length) {
    struct ds_plain_file file;
    size_t count = 0;
    if (!ds_plain_file_open(&file, data, length) || file.skips_null)
        return 0;
    for (enum ds_message_kind kind = DS_INPUT; kind < DS_DUMP_DATA; kind++)
        count += file.segments[kind];
    return count;
}

void ds_count_segments(const uint8_t *data, size_t length, uint32_t counts[DS_DUMP_DATA]) {
    struct ds_plain_file file;
    bool plain = ds_plain_file_open(&file, data, length);
    for (size_t kind = 0; kind < DS_DUMP_DATA; kind++)
        counts[kind] = plain ? file.segments[kind] : 0;
}
