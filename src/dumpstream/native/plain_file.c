#include "plain_file.h"

#include <endian.h>
#include <string.h>

#define PREFIX 8u
/* A dimension that was not known when the operator was compiled. */
#define DYNAMIC UINT64_MAX

bool ds_plain_file_open(struct ds_plain_file *file, const uint8_t *data, size_t length) {
    struct ds_header header;
    struct ds_dump_data message;
    struct ds_entry entry;
    *file = (struct ds_plain_file){.data = data, .length = length};
    if (ds_header_read(data, length, &header) != DS_HEADER_WHOLE)
        return false;
    if (length != header.total && length != header.present)
        return false;
    file->skips_null = length != header.total;
    uint64_t message_bytes;
    memcpy(&message_bytes, data, PREFIX);
    file->header_bytes = PREFIX + le64toh(message_bytes);
    ds_plain_file_begin(file, &message);
    while (ds_dump_data_next(&message, &entry)) {
        if (entry.kind == DS_ENTRY_OP_NAME)
            file->op_name = entry.text;
        else if (entry.kind >= DS_ENTRY_INPUT)
            file->segments[entry.segment.kind]++;
    }
    return !message.fault;
}

void ds_plain_file_begin(const struct ds_plain_file *file, struct ds_dump_data *message) {
    ds_dump_data_begin(message, file->data + PREFIX, file->header_bytes - PREFIX);
}

bool ds_plain_file_next(struct ds_dump_data *message, enum ds_message_kind kind, struct ds_entry *entry) {
    while (ds_dump_data_next(message, entry)) {
        if (entry->kind >= DS_ENTRY_INPUT && entry->segment.kind == kind)
            return true;
    }
    return false;
}

bool ds_count_elements(const struct ds_segment *segment, uint64_t element_bytes, uint64_t *count,
                       bool *shaped) {
    uint64_t most = segment->size / element_bytes, product = 1;
    *shaped = segment->shape.count > 0;
    for (uint32_t i = 0; i < segment->shape.count; i++)
        *shaped = *shaped && segment->shape.dim[i] != DYNAMIC;
    for (uint32_t i = 0; *shaped && i < segment->shape.count; i++) {
        if (__builtin_mul_overflow(product, segment->shape.dim[i], &product))
            return false;
    }
    *count = *shaped ? product : most;
    return *count <= most;
}
