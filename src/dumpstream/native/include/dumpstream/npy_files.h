/* NPY files: the tensors of small dump files, each written to a file of its own in numpy's format.
 *
 * Only plain files are taken: whole dump files with exactly the bytes that their headers promise, few
 * tensors, and elements that numpy reads as they lie and that fit their shape. Bytes are untrusted, and
 * nothing calls into Python. */
#pragma once

#include "dumpstream/tensor_rows.h"

/* How numpy reads the elements of a data type. */
struct ds_npy_type {
    bool known;
    bool shaped; /* the tensor's shape is that of the elements */
    uint32_t bytes;
    char name[8]; /* as in the header of the file */
};

/* What became of a dump file. */
struct ds_npy_result {
    uint64_t bytes;     /* of all files that were made */
    uint32_t tensors;   /* how many those are */
    uint32_t io, index; /* of the first tensor whose file could not be made, a ds_message_kind and its number
                           among those of that kind, */
    int32_t error;      /* and why: a negative errno; 0 if there is none */
    uint8_t taken;      /* 0: it is not plain, and nothing was made */
};

/* Makes the files `stem`.<io>.<index>.npy, as `ds_new_file` does, in a directory. `stem` has at most
 * DS_NPY_STEM bytes, and there are DS_DATA_TYPES `types`. */
#define DS_NPY_STEM 220
void ds_npy_files_write(int dir_fd, const char *stem, const uint8_t *data, size_t length,
                        const struct ds_npy_type *types, struct ds_npy_result *result);
