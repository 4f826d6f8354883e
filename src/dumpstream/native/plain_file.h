/* Plain files: whole dump files, with exactly the bytes that their headers promise. */
#pragma once

#include "dumpstream/header.h"

struct ds_plain_file {
    const uint8_t *data;
    size_t length;
    size_t header_bytes;
    bool skips_null; /* the file has no bytes for tensors without an address */
    struct ds_span op_name;
    uint32_t segments[DS_DUMP_DATA]; /* how many there are of every kind */
};

/* Looks at untrusted bytes; false if they are not a plain file. */
bool ds_plain_file_open(struct ds_plain_file *file, const uint8_t *data, size_t length);

/* Begins to read the header again. */
void ds_plain_file_begin(const struct ds_plain_file *file, struct ds_dump_data *message);

/* Reads on to the next segment of that kind; false if there is none. */
bool ds_plain_file_next(struct ds_dump_data *message, enum ds_message_kind kind, struct ds_entry *entry);

/* Counts the elements of the shape, or of the bytes if there is no shape. False: the shape does not fit the
 * bytes. `*shaped` is whether it was the shape. */
bool ds_count_elements(const struct ds_segment *segment, uint64_t element_bytes, uint64_t *count,
                       bool *shaped);
