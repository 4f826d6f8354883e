/* File pairs: how the tensors of many pairs of small dump files differ, in one call, kept as fixed records.
 *
 * Only plain pairs are taken: two whole dump files with exactly the bytes that their headers promise, and
 * with the same tensors: as many of every kind, each pair with the same shapes and format, which is not one
 * that has to be rearranged, and elements that need no table. For any other pair the caller must find out.
 * Bytes are untrusted, and nothing calls into Python. */
#pragma once

#include <sys/types.h>

#include "dumpstream/comparison.h"
#include "dumpstream/tensor_rows.h"

/* A larger file is not taken. */
#define DS_SMALL_FILE ((size_t)256 << 10)

/* How the elements of a data type are compared. */
struct ds_pair_type {
    bool known;
    uint32_t components; /* numbers in an element: 2 in a complex one */
    struct ds_side side; /* of a kind without a table */
};

struct ds_pair_row {
    struct ds_comparison_summary summary;
    uint64_t pair;                /* its number, in the order in which pairs were added */
    uint64_t size[2], address[2]; /* of mine and of the golden */
    int32_t data_type[2];
    int32_t format;
    uint32_t io, index; /* a ds_message_kind, and the number among those of that kind */
    uint32_t dims, original_dims;
};

struct ds_file_pairs {
    const struct ds_pair_type *types; /* DS_DATA_TYPES of them */
    const int32_t *arranged;          /* formats that are rearranged if the original shape is known */
    size_t arranged_count;
    bool divergence; /* compute the Kullback-Leibler divergence */
    struct ds_pair_row *row;
    size_t count, room;
    struct ds_dim_list shapes, original_shapes;
    uint64_t pairs;
    struct ds_comparison comparison; /* of the tensors at hand */
};

void ds_file_pairs_init(struct ds_file_pairs *pairs, const struct ds_pair_type *types);
void ds_file_pairs_free(struct ds_file_pairs *pairs);

/* Adds the rows of a pair, in the order of the bytes. Returns 1, or 0 without a row if it is not plain, or
 * -ENOMEM. */
int ds_file_pairs_add(struct ds_file_pairs *pairs, const uint8_t *mine, size_t mine_length,
                      const uint8_t *golden, size_t golden_length);

/* The directory that the last file was in: most files are in the same. */
struct ds_last_directory {
    int fd; /* -1 if there is none */
    size_t length;
    char path[4096];
};

/* Reads the file `path`, which is not a link, into `buffer` of DS_SMALL_FILE + 1 bytes. Returns its length,
 * or -1 if it is larger, or cannot be read so. */
ssize_t ds_read_small_file(struct ds_last_directory *last, const char *path, uint8_t *buffer);
