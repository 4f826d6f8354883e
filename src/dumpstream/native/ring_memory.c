/* The memory and the files of rings. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring_layout.h"

#define MAX_RECORD_BYTES (1u << 30)

static int open_memory(uint64_t bytes) {
    int fd = memfd_create("dumpstream-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int ds_ring_open_file(const char *path, uint64_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    /* Allocate the blocks now: a full disk must be an error here, not a SIGBUS in the callback. */
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    if (error != 0) {
        close(fd);
        unlink(path);
        return -error;
    }
    return fd;
}

static void touch(uint8_t *base, uint64_t bytes) {
    madvise(base, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
        return;
#endif
    for (uint64_t i = 0; i < bytes; i += DS_PAGE)
        *(volatile uint8_t *)(base + i) = 0;
}

static void lay_out_lane(struct ds_lane *lane, struct ds_lane_positions *positions, uint8_t *base,
                         uint64_t start, uint64_t size, uint64_t kept) {
    *lane = (struct ds_lane){.positions = positions,
                             .base = base ? base + start : NULL,
                             .start = start,
                             .size = size,
                             .kept = kept};
}

void ds_ring_lay_out(struct ds_ring *ring, struct ds_control *control, uint8_t *base, uint64_t data_size) {
    uint64_t data_start = DS_CONTROL_BYTES + DS_NOTE_LANE_BYTES;
    uint64_t max_record = data_size / 8 / DS_RECORD_ALIGN * DS_RECORD_ALIGN;
    ring->control = control;
    ring->max_record = max_record > MAX_RECORD_BYTES ? MAX_RECORD_BYTES : (uint32_t)max_record;
    lay_out_lane(&ring->notes, &control->notes, base, DS_CONTROL_BYTES, DS_NOTE_LANE_BYTES, DS_ABANDON_BYTES);
    lay_out_lane(&ring->data, &control->data, base, data_start, data_size, 0);
}

int ds_control_init(struct ds_control *control, uint64_t data_size) {
    memset(control, 0, sizeof *control);
    if (getrandom(&control->nonce, sizeof control->nonce, 0) != (ssize_t)sizeof control->nonce)
        return -EIO;
    control->magic = DS_RING_MAGIC;
    control->version = DS_RING_VERSION;
    control->data_size = data_size;
    control->note_size = DS_NOTE_LANE_BYTES;
    atomic_store(&control->wake_at, DS_NEVER);
    return 0;
}

/* Destroys a ring that could not be made completely, and its file. Returns `error`. */
static int discard(struct ds_ring *ring, const char *path, int error) {
    ds_ring_destroy(ring);
    if (path)
        unlink(path);
    return error;
}

int ds_ring_make(struct ds_ring *ring, uint64_t data_size, const char *path) {
    memset(ring, 0, sizeof *ring);
    if (data_size < DS_RING_MIN_BYTES || data_size > DS_RING_MAX_BYTES)
        return -EINVAL;
    data_size = ds_align_up(data_size, DS_PAGE);
    ring->mapped = ds_ring_bytes(data_size);
    ring->event_fd = -1;
    ring->memory_fd = path ? ds_ring_open_file(path, ring->mapped) : open_memory(ring->mapped);
    if (ring->memory_fd < 0)
        return ring->memory_fd;
    uint8_t *base = mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memory_fd, 0);
    if (base == MAP_FAILED)
        return discard(ring, path, -errno);
    madvise(base, ring->mapped, MADV_DONTFORK);
    touch(base, path ? DS_CONTROL_BYTES + DS_NOTE_LANE_BYTES : ring->mapped);
    ds_ring_lay_out(ring, (struct ds_control *)(void *)base, base, data_size);
    int error = ds_control_init(ring->control, data_size);
    ring->nonce = ring->control->nonce;
    return error ? discard(ring, path, error) : 0;
}

static void wake_by_event(struct ds_ring *ring) {
    uint64_t one = 1;
    ssize_t written = write(ring->event_fd, &one, sizeof one);
    (void)written; /* only fails if the descriptor is readable already */
}

int ds_ring_create(struct ds_ring *ring, uint64_t data_size, const char *path) {
    int error = ds_ring_make(ring, data_size, path);
    if (error)
        return error;
    ring->wake = wake_by_event;
    ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ring->event_fd < 0 ? discard(ring, path, -errno) : 0;
}

/* Whether the descriptor may be that of a ring of this size. A memfd must be sealed:
 * if it could shrink, a producer that writes to it could be killed. */
static bool is_ring(int fd, uint64_t bytes, bool *in_memory) {
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    *in_memory = seals >= 0;
    if (*in_memory && !(seals & F_SEAL_SHRINK))
        return false;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (uint64_t)status.st_size == bytes;
}

bool ds_control_is_sound(const struct ds_control *control, uint64_t data_size) {
    return control->magic == DS_RING_MAGIC && control->version == DS_RING_VERSION &&
           control->data_size == data_size && control->note_size == DS_NOTE_LANE_BYTES;
}

int ds_ring_map(struct ds_ring *ring, int fd, uint64_t data_size) {
    bool in_memory;
    memset(ring, 0, sizeof *ring);
    ring->memory_fd = ring->event_fd = -1;
    if (data_size < DS_RING_MIN_BYTES || data_size > DS_RING_MAX_BYTES || data_size % DS_PAGE)
        return -EBADMSG;
    ring->mapped = ds_ring_bytes(data_size);
    if (!is_ring(fd, ring->mapped, &in_memory))
        return -EBADMSG;
    /* A file may be larger than memory: its pages are touched during the first lap instead. */
    uint8_t *base =
        mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | (in_memory ? MAP_POPULATE : 0), fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, ring->mapped, MADV_DONTFORK);
    ds_ring_lay_out(ring, (struct ds_control *)(void *)base, base, data_size);
    ring->nonce = ring->control->nonce;
    if (ds_control_is_sound(ring->control, data_size))
        return 0;
    ds_ring_destroy(ring);
    return -EBADMSG;
}

void ds_ring_destroy(struct ds_ring *ring) {
    if (ring->control)
        munmap(ring->control, ring->mapped);
    if (ring->event_fd >= 0)
        close(ring->event_fd);
    if (ring->memory_fd >= 0)
        close(ring->memory_fd);
    ring->control = NULL;
}
