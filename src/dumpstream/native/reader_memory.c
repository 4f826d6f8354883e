/* The memory and the files of readers. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dumpstream/reader.h"
#include "ring_layout.h"

int ds_reader_create(struct ds_reader *reader, uint64_t data_size, const char *path) {
    *reader = (struct ds_reader){0};
    int error = ds_ring_make(&reader->ring, data_size, path, !path);
    if (error || path)
        return error;
    if (fcntl(reader->ring.memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        error = -errno;
        ds_ring_destroy(&reader->ring);
    }
    return error;
}

/* Whether an earlier reader can have left a lane like this. */
static bool lane_is_sound(const struct ds_lane_positions *positions, uint64_t size) {
    uint64_t head = atomic_load(&positions->head), tail = atomic_load(&positions->tail);
    return head % DS_RECORD_ALIGN == 0 && tail % DS_RECORD_ALIGN == 0 && head - tail <= size;
}

static bool control_is_sound(const struct ds_control *control, uint64_t file_bytes) {
    uint64_t size = control->data_size;
    return ds_size_is_sound(size) && size % DS_PAGE == 0 && file_bytes == ds_ring_bytes(size) &&
           ds_control_is_sound(control, size) && lane_is_sound(&control->data, size) &&
           lane_is_sound(&control->notes, DS_NOTE_LANE_BYTES);
}

static int resume(struct ds_reader *reader) {
    struct stat status;
    struct ds_control control;
    struct ds_ring *ring = &reader->ring;
    if (fstat(ring->memory_fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EBADMSG;
    ds_ring_load(ring, 0, &control, sizeof control);
    if (!control_is_sound(&control, (uint64_t)status.st_size))
        return -EBADMSG;
    int error = ds_ring_map_fd(ring, ring->memory_fd, control.data_size, false, 0);
    ring->nonce = control.nonce;
    ring->data.read = ring->data.freed = atomic_load(&control.data.tail);
    ring->notes.read = ring->notes.freed = atomic_load(&control.notes.tail);
    return error;
}

int ds_reader_resume(struct ds_reader *reader, const char *path) {
    *reader = (struct ds_reader){.resumed = true, .ring = {.event_fd = -1}};
    /* O_NONBLOCK: opening a pipe of that name would wait. */
    reader->ring.memory_fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (reader->ring.memory_fd < 0)
        return -errno;
    int error = resume(reader);
    if (error)
        close(reader->ring.memory_fd);
    return error;
}
