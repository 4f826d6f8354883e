#include "dumpstream/tensor_rows.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define PREFIX 8u
/* A dimension that was not known when the operator was compiled. */
#define DYNAMIC UINT64_MAX

/* A plain file, as far as it has been read. */
struct file {
    const uint8_t *data;
    size_t length;
    size_t header_bytes;
    bool skips_null; /* the file has no bytes for tensors without an address */
    uint64_t position;
    struct ds_span op_name;
    uint32_t segments[DS_DUMP_DATA];
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

/* Room */

static int make_room(void **array, size_t *room, size_t needed, size_t item) {
    size_t wanted = *room ? *room : 64;
    if (needed <= *room)
        return 1;
    while (wanted < needed)
        wanted *= 2;
    void *grown = realloc(*array, wanted * item);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *room = wanted;
    return 1;
}

static int append_dims(struct ds_dim_list *list, const struct ds_dims *dims) {
    if (dims->count == 0)
        return 1;
    if (make_room((void **)&list->dim, &list->room, list->count + dims->count, sizeof *list->dim) < 0)
        return -ENOMEM;
    memcpy(list->dim + list->count, dims->dim, dims->count * sizeof *list->dim);
    list->count += dims->count;
    return 1;
}

/* Headers */

/* Counts the segments of every kind; false if the file is not plain. */
static bool look_at_header(struct file *file) {
    struct ds_header header;
    struct ds_dump_data message;
    struct ds_entry entry;
    if (ds_header_read(file->data, file->length, &header) != DS_HEADER_WHOLE)
        return false;
    if (file->length != header.total && file->length != header.present)
        return false;
    file->skips_null = file->length != header.total;
    uint64_t message_bytes;
    memcpy(&message_bytes, file->data, PREFIX);
    file->position = file->header_bytes = PREFIX + le64toh(message_bytes);
    ds_dump_data_begin(&message, file->data + PREFIX, file->header_bytes - PREFIX);
    while (ds_dump_data_next(&message, &entry)) {
        if (entry.kind == DS_ENTRY_OP_NAME)
            file->op_name = entry.text;
        else if (entry.kind >= DS_ENTRY_INPUT)
            file->segments[entry.segment.kind]++;
    }
    return !message.fault;
}

/* Counts the elements of the shape, or of the bytes if there is no shape. False: the shape
 * does not fit the bytes. */
static bool count_elements(const struct ds_segment *segment, uint64_t element_bytes, uint64_t *count) {
    uint64_t most = segment->size / element_bytes, product = 1;
    bool shaped = segment->shape.count > 0;
    for (uint32_t i = 0; i < segment->shape.count; i++)
        shaped = shaped && segment->shape.dim[i] != DYNAMIC;
    for (uint32_t i = 0; shaped && i < segment->shape.count; i++) {
        if (__builtin_mul_overflow(product, segment->shape.dim[i], &product))
            return false;
    }
    *count = shaped ? product : most;
    return *count <= most;
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
    const struct ds_reading *reading = find_reading(rows, segment->data_type);
    if (!reading)
        return false;
    uint64_t element_bytes = DS_KIND[reading->kind].bits / 8 * reading->components;
    if (segment->size > file->length - file->position || !count_elements(segment, element_bytes, &elements))
        return false;
    row->stored = true;
    row->start = file->position;
    row->taken = elements * element_bytes;
    file->position += segment->size;
    ds_statistics_init(&rows->statistics, reading->kind, NULL, 0, DS_UNLIMITED, false);
    ds_statistics_update(&rows->statistics, file->data + row->start, row->taken);
    ds_statistics_result(&rows->statistics, &row->summary, NULL);
    return true;
}

static int append_row(struct ds_tensor_rows *rows, struct file *file, const struct ds_segment *segment,
                      uint32_t index) {
    if (make_room((void **)&rows->row, &rows->room, rows->count + 1, sizeof *rows->row) < 0)
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
    row->op_name_start = file->op_name.at ? (uint64_t)(file->op_name.at - file->data) : 0;
    row->op_name_length = file->op_name.length;
    bool addressed = segment->kind == DS_INPUT || segment->kind == DS_OUTPUT;
    bool skipped = file->skips_null && addressed && segment->address == 0;
    if (!skipped && !measure(rows, file, segment, row))
        return 0;
    rows->count++;
    if (append_dims(&rows->shapes, &segment->shape) < 0)
        return -ENOMEM;
    return append_dims(&rows->original_shapes, &segment->original_shape);
}

/* Segments of different kinds may come in any order; their bytes do not. */
static int append_kind(struct ds_tensor_rows *rows, struct file *file, enum ds_message_kind kind) {
    struct ds_dump_data message;
    struct ds_entry entry;
    uint32_t index = 0;
    ds_dump_data_begin(&message, file->data + PREFIX, file->header_bytes - PREFIX);
    while (index < file->segments[kind] && ds_dump_data_next(&message, &entry)) {
        if (entry.kind < DS_ENTRY_INPUT || entry.segment.kind != kind)
            continue;
        int result = append_row(rows, file, &entry.segment, index++);
        if (result != 1)
            return result;
    }
    return 1;
}

static int append_file(struct ds_tensor_rows *rows, struct file *file) {
    if (!look_at_header(file))
        return 0;
    for (enum ds_message_kind kind = DS_INPUT; kind < DS_DUMP_DATA; kind++) {
        int result = append_kind(rows, file, kind);
        if (result != 1)
            return result;
    }
    /* Both readers of the header must have found the same sizes. */
    return file->position == file->length;
}

int ds_tensor_rows_add(struct ds_tensor_rows *rows, const uint8_t *data, size_t length) {
    size_t count = rows->count, dims = rows->shapes.count, original_dims = rows->original_shapes.count;
    struct file file = {.data = data, .length = length};
    int result = append_file(rows, &file);
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
    struct file file = {.data = data, .length = length};
    size_t count = 0;
    if (!look_at_header(&file) || file.skips_null)
        return 0;
    for (enum ds_message_kind kind = DS_INPUT; kind < DS_DUMP_DATA; kind++)
        count += file.segments[kind];
    return count;
}
