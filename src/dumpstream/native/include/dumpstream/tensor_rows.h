/* Rows: the statistics of every tensor of many whole dump files, computed in one
 * call and kept as fixed records.
 *
 * Only plain files are taken: a header without a fault, exactly the bytes that it
 * promises, and tensors with elements that need no table and fit their shape. For
 * any other file the caller must make the rows. Bytes are untrusted, and nothing
 * calls into Python. */
#pragma once

#include "dumpstream/header.h"
#include "dumpstream/statistics.h"

/* How the elements of a data type are read. */
struct ds_reading {
    bool known;
    enum ds_kind kind;   /* one without a table */
    uint32_t components; /* numbers in an element: 2 in a complex one */
};

/* CANN's data types have smaller numbers. */
#define DS_DATA_TYPES 64

struct ds_tensor_row {
    struct ds_summary summary;
    uint64_t file; /* its number, in the order in which files were added */
    uint64_t size, address;
    uint64_t start, taken; /* where in the file its elements lie, and how many bytes they take */
    uint64_t op_name_start, op_name_length;
    int32_t data_type, format;
    uint32_t io, index; /* a ds_message_kind, and the number among those of that kind */
    uint32_t dims, original_dims;
    uint8_t stored; /* the file has the bytes; if it has not, nothing is known of the elements */
};

/* Dimensions of all rows, one row after the other. */
struct ds_dim_list {
    uint64_t *dim;
    size_t count, room;
};

struct ds_tensor_rows {
    const struct ds_reading *readings; /* DS_DATA_TYPES of them */
    struct ds_tensor_row *row;
    size_t count, room;
    struct ds_dim_list shapes, original_shapes;
    uint64_t files;
    struct ds_statistics statistics; /* of the tensor at hand */
};

void ds_tensor_rows_init(struct ds_tensor_rows *rows, const struct ds_reading *readings);
void ds_tensor_rows_free(struct ds_tensor_rows *rows);

/* Adds the rows of a file, in the order of its bytes. Returns 1, or 0 without a row
 * if the file is not plain, or -ENOMEM. */
int ds_tensor_rows_add(struct ds_tensor_rows *rows, const uint8_t *data, size_t length);

/* How many tensors the whole dump file has. 0 if it is not plain, or does not have the bytes of all. */
size_t ds_count_tensors(const uint8_t *data, size_t length);

/* How many segments of every kind the whole dump file has, with bytes or without; all 0 if it is not plain.
 */
void ds_count_segments(const uint8_t *data, size_t length, uint32_t counts[DS_DUMP_DATA]);
