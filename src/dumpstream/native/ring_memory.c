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

/* Access */

/* Orders what a system call did to the file before what comes next. seq_cst operations
 * on a mapping need nothing of the kind. */
static void order_system_calls(void) {
    static _Atomic uint32_t word;
    atomic_fetch_add_explicit(&word, 0, memory_order_seq_cst);
}

void ds_ring_load(const struct ds_ring *ring, uint64_t at, void *to, size_t bytes) {
    size_t done = 0;
    if (ring->data.base) {
        memcpy(to, (const uint8_t *)ring->control + at, bytes);
        return;
    }
    while (done < bytes) {
        ssize_t got = pread(ring->memory_fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EINTR)
            break;
    }
    memset((uint8_t *)to + done, 0, bytes - done);
    order_system_calls();
}

void ds_ring_store(struct ds_ring *ring, uint64_t at, const void *from, size_t bytes) {
    if (ring->data.base) {
        memcpy((uint8_t *)ring->control + at, from, bytes);
        return;
    }
    ssize_t written = pwrite(ring->memory_fd, from, bytes, (off_t)at);
    (void)written; /* it only fails in a damaged file, and only the producer that damaged it waits */
    order_system_calls();
}

static uint64_t offset_of(const struct ds_ring *ring, const _Atomic uint64_t *word) {
    return (uint64_t)((const uint8_t *)word - (const uint8_t *)ring->control);
}

uint64_t ds_word_load(const struct ds_ring *ring, const _Atomic uint64_t *word) {
    uint64_t value;
    if (ring->data.base)
        return atomic_load(word);
    ds_ring_load(ring, offset_of(ring, word), &value, sizeof value);
    return value;
}

void ds_word_store(struct ds_ring *ring, _Atomic uint64_t *word, uint64_t value) {
    if (ring->data.base)
        atomic_store(word, value);
    else
        ds_ring_store(ring, offset_of(ring, word), &value, sizeof value);
}

/* Life */

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

static int open_file(const char *path, uint64_t bytes) {
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

bool ds_size_is_sound(uint64_t data_size) {
    return data_size >= DS_RING_MIN_BYTES && data_size <= DS_RING_MAX_BYTES;
}

int ds_ring_map_fd(struct ds_ring *ring, int fd, uint64_t data_size, bool whole, int flags) {
    uint64_t max_record = data_size / 8 / DS_RECORD_ALIGN * DS_RECORD_ALIGN;
    ring->mapped = whole ? ds_ring_bytes(data_size) : DS_CONTROL_BYTES;
    uint8_t *base = mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, ring->mapped, MADV_DONTFORK);
    ring->control = (struct ds_control *)(void *)base;
    ring->max_record = max_record > MAX_RECORD_BYTES ? MAX_RECORD_BYTES : (uint32_t)max_record;
    lay_out_lane(&ring->notes, &ring->control->notes, whole ? base : NULL, DS_CONTROL_BYTES,
                 DS_NOTE_LANE_BYTES, DS_ABANDON_BYTES);
    lay_out_lane(&ring->data, &ring->control->data, whole ? base : NULL, ds_ring_bytes(0), data_size, 0);
    return 0;
}

/* Destroys a ring that could not be made completely, and its file. Returns `error`. */
static int discard(struct ds_ring *ring, const char *path, int error) {
    ds_ring_destroy(ring);
    if (path)
        unlink(path);
    return error;
}

int ds_ring_make(struct ds_ring *ring, uint64_t data_size, const char *path, bool whole) {
    struct ds_control control = {.magic = DS_RING_MAGIC,
                                 .version = DS_RING_VERSION,
                                 .note_size = DS_NOTE_LANE_BYTES,
                                 .wake_at = DS_NEVER};
    *ring = (struct ds_ring){.memory_fd = -1, .event_fd = -1};
    if (!ds_size_is_sound(data_size))
        return -EINVAL;
    control.data_size = ds_align_up(data_size, DS_PAGE);
    uint64_t bytes = ds_ring_bytes(control.data_size);
    ring->memory_fd = path ? open_file(path, bytes) : open_memory(bytes);
    if (ring->memory_fd < 0)
        return ring->memory_fd;
    int error = ds_ring_map_fd(ring, ring->memory_fd, control.data_size, whole, 0);
    if (!error && getrandom(&control.nonce, sizeof control.nonce, 0) != (ssize_t)sizeof control.nonce)
        error = -EIO;
    if (error)
        return discard(ring, path, error);
    if (whole)
        touch((uint8_t *)ring->control, path ? ds_ring_bytes(0) : ring->mapped);
    ring->nonce = control.nonce;
    ds_ring_store(ring, 0, &control, sizeof control);
    return 0;
}

static void wake_by_event(struct ds_ring *ring) {
    uint64_t one = 1;
    ssize_t written = write(ring->event_fd, &one, sizeof one);
    (void)written; /* only fails if the descriptor is readable already */
}

int ds_ring_create(struct ds_ring *ring, uint64_t data_size, const char *path) {
    int error = ds_ring_make(ring, data_size, path, true);
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
    *ring = (struct ds_ring){.memory_fd = -1, .event_fd = -1};
    if (!ds_size_is_sound(data_size) || data_size % DS_PAGE ||
        !is_ring(fd, ds_ring_bytes(data_size), &in_memory))
        return -EBADMSG;
    /* A file may be larger than memory: its pages are touched during the first lap instead. */
    int error = ds_ring_map_fd(ring, fd, data_size, true, in_memory ? MAP_POPULATE : 0);
    if (error)
        return error;
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
