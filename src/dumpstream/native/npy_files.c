#include "dumpstream/npy_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dumpstream/newfile.h"
#include "plain_file.h"

#define MOST_TENSORS 32

static const char *const io_names[DS_DUMP_DATA] = {"input", "output", "buffer", "space"};

/* A tensor of which a file is to be made. */
struct tensor {
    uint32_t io, index;
    const struct ds_npy_type *type;
    const uint8_t *data;
    size_t size;
    struct ds_dims shape;
};

struct tensors {
    struct tensor tensor[MOST_TENSORS];
    size_t count;
};

/* Finding them */

static bool choose_shape(const struct ds_segment *segment, struct tensor *tensor) {
    struct ds_segment read = *segment;
    uint64_t count;
    bool shaped;
    if (!tensor->type->shaped)
        read.shape.count = 0;
    if (!ds_count_elements(&read, tensor->type->bytes, &count, &shaped))
        return false;
    /* numpy may refuse an empty array for the other dimensions. */
    if (shaped && count == 0)
        return false;
    tensor->size = count * tensor->type->bytes;
    tensor->shape = shaped ? read.shape : (struct ds_dims){.count = 1, .dim = {count}};
    return true;
}

static bool append_tensor(const struct ds_plain_file *file, uint64_t *position,
                          const struct ds_segment *segment, uint32_t index, const struct ds_npy_type *types,
                          struct tensors *tensors) {
    bool addressed = segment->kind == DS_INPUT || segment->kind == DS_OUTPUT;
    if (file->skips_null && addressed && segment->address == 0)
        return true;
    if (tensors->count == MOST_TENSORS || segment->size > file->length - *position)
        return false;
    if (segment->data_type < 0 || segment->data_type >= DS_DATA_TYPES || !types[segment->data_type].known)
        return false;
    struct tensor *tensor = &tensors->tensor[tensors->count++];
    *tensor = (struct tensor){.io = segment->kind, .index = index, .type = &types[segment->data_type]};
    tensor->data = file->data + *position;
    *position += segment->size;
    return choose_shape(segment, tensor);
}

/* Segments of different kinds may come in any order; their bytes do not. */
static bool find_tensors(const uint8_t *data, size_t length, const struct ds_npy_type *types,
                         struct tensors *tensors) {
    struct ds_plain_file file;
    struct ds_dump_data message;
    struct ds_entry entry;
    tensors->count = 0;
    if (!ds_plain_file_open(&file, data, length))
        return false;
    uint64_t position = file.header_bytes;
    for (enum ds_message_kind kind = DS_INPUT; kind < DS_DUMP_DATA; kind++) {
        uint32_t index = 0;
        ds_plain_file_begin(&file, &message);
        while (index < file.segments[kind] && ds_plain_file_next(&message, kind, &entry)) {
            if (!append_tensor(&file, &position, &entry.segment, index++, types, tensors))
                return false;
        }
    }
    /* Both readers of the header must have found the same sizes. */
    return position == length && tensors->count > 0;
}

/* Writing them */

#define PREFIX 10 /* magic, version and length */
#define ALIGNMENT 64
#define MOST_DIGITS 20
/* Has room for the shape, the words around it, and spaces. */
#define HEADER_ROOM (DS_MAX_DIMS * (MOST_DIGITS + 2) + 256)

/* Makes the header as numpy does, with space for the digits of a first dimension that grows. */
static size_t make_header(const struct tensor *tensor, char *header) {
    char *at = header + PREFIX;
    at += sprintf(at, "{'descr': '%s', 'fortran_order': False, 'shape': (", tensor->type->name);
    int first = 0;
    for (uint32_t i = 0; i < tensor->shape.count; i++) {
        int digits = sprintf(at, i ? ", %llu" : "%llu", (unsigned long long)tensor->shape.dim[i]);
        first = i ? first : digits;
        at += digits;
    }
    at += sprintf(at, tensor->shape.count == 1 ? ",), }" : "), }");
    size_t used = (size_t)(at - header) + (size_t)(MOST_DIGITS + 1 - first);
    size_t size = (used / ALIGNMENT + 1) * ALIGNMENT;
    memset(at, ' ', (size_t)(header + size - at));
    header[size - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((size - PREFIX) & 0xff);
    header[9] = (char)((size - PREFIX) >> 8);
    return size;
}

static int write_tensor(int dir_fd, const char *stem, const struct tensor *tensor, uint64_t *bytes) {
    char name[DS_NPY_STEM + 32], header[HEADER_ROOM];
    snprintf(name, sizeof name, "%s.%s.%u.npy", stem, io_names[tensor->io], tensor->index);
    struct iovec pieces[] = {{header, make_header(tensor, header)}, {(void *)tensor->data, tensor->size}};
    *bytes = pieces[0].iov_len + pieces[1].iov_len;
    return ds_new_file_of(dir_fd, name, pieces, 2);
}

void ds_npy_files_write(int dir_fd, const char *stem, const uint8_t *data, size_t length,
                        const struct ds_npy_type *types, struct ds_npy_result *result) {
    struct tensors tensors;
    memset(result, 0, sizeof *result);
    if (!find_tensors(data, length, types, &tensors))
        return;
    result->taken = 1;
    for (size_t i = 0; i < tensors.count; i++) {
        const struct tensor *tensor = &tensors.tensor[i];
        uint64_t bytes;
        int error = write_tensor(dir_fd, stem, tensor, &bytes);
        if (!error) {
            result->tensors++;
            result->bytes += bytes;
        } else if (!result->error) {
            result->error = error;
            result->io = tensor->io;
            result->index = tensor->index;
        }
    }
    /* Where files cannot be without a name, the caller has another way. */
    if (result->error == -EOPNOTSUPP && result->tensors == 0)
        memset(result, 0, sizeof *result);
}
