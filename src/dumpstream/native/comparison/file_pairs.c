#include "dumpstream/file_pairs.h"

#include <fcntl.h>
#include <unistd.h>

#include "../plain_file.h"
#include "../room.h"
#include "pairs.h"

enum { MINE, GOLDEN, SIDES };

/* Two plain files, as far as they have been read. */
struct file_pair {
    struct ds_plain_file file[SIDES];
    uint64_t position[SIDES];
};

void ds_file_pairs_init(struct ds_file_pairs *pairs, const struct ds_pair_type *types) {
    memset(pairs, 0, offsetof(struct ds_file_pairs, comparison));
    pairs->types = types;
}

void ds_file_pairs_free(struct ds_file_pairs *pairs) {
    free(pairs->row);
    free(pairs->shapes.dim);
    free(pairs->original_shapes.dim);
}

static const struct ds_pair_type *find_type(const struct ds_file_pairs *pairs, int32_t data_type) {
    bool known = data_type >= 0 && data_type < DS_DATA_TYPES && pairs->types[data_type].known;
    return known ? &pairs->types[data_type] : NULL;
}

static bool is_arranged(const struct ds_file_pairs *pairs, const struct ds_segment *segment) {
    for (size_t i = 0; i < pairs->arranged_count; i++) {
        if (pairs->arranged[i] == segment->format)
            return segment->original_shape.count > 0;
    }
    return false;
}

static bool same_dims(const struct ds_dims *dims, const struct ds_dims *other) {
    return dims->count == other->count && memcmp(dims->dim, other->dim, dims->count * sizeof *dims->dim) == 0;
}

/* Whether the elements of both lie in the same order. */
static bool is_alike(const struct ds_file_pairs *pairs, const struct ds_segment *mine,
                     const struct ds_segment *golden) {
    return mine->format == golden->format && same_dims(&mine->shape, &golden->shape) &&
           same_dims(&mine->original_shape, &golden->original_shape) && !is_arranged(pairs, mine);
}

/* Finds how many elements the segment has, which comes next in its file. */
static bool find_elements(const struct file_pair *pair, int side, const struct ds_segment *segment,
                          const struct ds_pair_type *type, uint64_t *elements) {
    bool shaped;
    uint64_t element_bytes = DS_KIND[type->side.kind].bits / 8 * type->components;
    if (segment->size > pair->file[side].length - pair->position[side] || segment->address == 0)
        return false;
    return ds_count_elements(segment, element_bytes, elements, &shaped) && shaped && *elements > 0;
}

static void compare(struct ds_file_pairs *pairs, const struct file_pair *pair,
                    const struct ds_pair_type *const types[SIDES], uint64_t elements,
                    struct ds_comparison_summary *summary) {
    const uint8_t *mine = pair->file[MINE].data + pair->position[MINE];
    const uint8_t *golden = pair->file[GOLDEN].data + pair->position[GOLDEN];
    uint64_t numbers = elements * types[MINE]->components;
    ds_comparison_init(&pairs->comparison, &types[MINE]->side, &types[GOLDEN]->side, pairs->divergence);
    ds_comparison_whole(&pairs->comparison, mine, golden, numbers, summary);
}

static int append_row(struct ds_file_pairs *pairs, struct file_pair *pair, const struct ds_segment *mine,
                      const struct ds_segment *golden, uint32_t index) {
    const struct ds_pair_type *types[SIDES] = {find_type(pairs, mine->data_type),
                                               find_type(pairs, golden->data_type)};
    uint64_t elements, others;
    if (!types[MINE] || !types[GOLDEN] || types[MINE]->components != types[GOLDEN]->components ||
        !is_alike(pairs, mine, golden) || !find_elements(pair, MINE, mine, types[MINE], &elements) ||
        !find_elements(pair, GOLDEN, golden, types[GOLDEN], &others))
        return 0;
    if (ds_make_room((void **)&pairs->row, &pairs->room, pairs->count + 1, sizeof *pairs->row) < 0)
        return -ENOMEM;
    struct ds_pair_row *row = &pairs->row[pairs->count++];
    *row = (struct ds_pair_row){
        .pair = pairs->pairs,
        .size = {mine->size, golden->size},
        .address = {mine->address, golden->address},
        .data_type = {mine->data_type, golden->data_type},
        .format = mine->format,
        .io = mine->kind,
        .index = index,
        .dims = mine->shape.count,
        .original_dims = mine->original_shape.count,
    };
    compare(pairs, pair, types, elements, &row->summary);
    pair->position[MINE] += mine->size;
    pair->position[GOLDEN] += golden->size;
    if (ds_append_dims(&pairs->shapes, &mine->shape) < 0)
        return -ENOMEM;
    return ds_append_dims(&pairs->original_shapes, &mine->original_shape);
}

/* Segments of different kinds may come in any order; their bytes do not. */
static int append_kind(struct ds_file_pairs *pairs, struct file_pair *pair, enum ds_message_kind kind) {
    struct ds_dump_data messages[SIDES];
    struct ds_entry mine, golden;
    ds_plain_file_begin(&pair->file[MINE], &messages[MINE]);
    ds_plain_file_begin(&pair->file[GOLDEN], &messages[GOLDEN]);
    for (uint32_t index = 0; index < pair->file[MINE].segments[kind]; index++) {
        if (!ds_plain_file_next(&messages[MINE], kind, &mine) ||
            !ds_plain_file_next(&messages[GOLDEN], kind, &golden))
            return 0;
        int result = append_row(pairs, pair, &mine.segment, &golden.segment, index);
        if (result != 1)
            return result;
    }
    return 1;
}

static int append_pair(struct ds_file_pairs *pairs, struct file_pair *pair) {
    const struct ds_plain_file *mine = &pair->file[MINE], *golden = &pair->file[GOLDEN];
    if (memcmp(mine->segments, golden->segments, sizeof mine->segments) != 0)
        return 0;
    pair->position[MINE] = mine->header_bytes;
    pair->position[GOLDEN] = golden->header_bytes;
    for (enum ds_message_kind kind = DS_INPUT; kind < DS_DUMP_DATA; kind++) {
        int result = mine->segments[kind] ? append_kind(pairs, pair, kind) : 1;
        if (result != 1)
            return result;
    }
    /* Both readers of the headers must have found the same sizes. */
    return pair->position[MINE] == mine->length && pair->position[GOLDEN] == golden->length;
}

int ds_file_pairs_add(struct ds_file_pairs *pairs, const uint8_t *mine, size_t mine_length,
                      const uint8_t *golden, size_t golden_length) {
    size_t count = pairs->count, dims = pairs->shapes.count, original_dims = pairs->original_shapes.count;
    struct file_pair pair;
    int result = 0;
    if (ds_plain_file_open(&pair.file[MINE], mine, mine_length) &&
        ds_plain_file_open(&pair.file[GOLDEN], golden, golden_length))
        result = append_pair(pairs, &pair);
    if (result != 1 || pairs->count == count) {
        pairs->count = count;
        pairs->shapes.count = dims;
        pairs->original_shapes.count = original_dims;
        result = result < 0 ? result : 0;
    }
    pairs->pairs++;
    return result;
}

/* Opens the directory of `path`, unless it is the last one. Returns the name in it; NULL if the path is used
 * as it is. */
static const char *enter(struct ds_last_directory *last, const char *path) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length == 0 || length >= sizeof last->path)
        return NULL;
    if (last->fd >= 0 && last->length == length && memcmp(last->path, path, length) == 0)
        return slash + 1;
    if (last->fd >= 0)
        close(last->fd);
    memcpy(last->path, path, length);
    last->path[length] = '\0';
    last->length = length;
    last->fd = open(last->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return last->fd >= 0 ? slash + 1 : NULL;
}

ssize_t ds_read_small_file(struct ds_last_directory *last, const char *path, uint8_t *buffer) {
    const char *name = enter(last, path);
    /* O_NONBLOCK: a FIFO in the place of a file must not wait for its other end. */
    int fd = openat(name ? last->fd : AT_FDCWD, name ? name : path,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    /* One call takes all of a regular file. If it ever did not, the header would promise more. */
    ssize_t length = read(fd, buffer, DS_SMALL_FILE + 1);
    close(fd);
    return length > (ssize_t)DS_SMALL_FILE ? -1 : length;
}
