/* The memory and the files of rings, for producers and readers. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dumpstream/reader.h"
#include "ring_layout.h"

#define MAX_RECORD_BYTES (1u << 30)
/* A file costs its reader about as much as a kibibyte, however small it is. A ring below
 * 4 MiB has room for 4096 records all the same. */
#define LEAST_RECORD_BYTES (1u << 10)
#define LEAST_RECORDS 4096u
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; headers of older systems do not have it */
#endif

/* Access */

/* Orders what a system call did to the file before what comes next. seq_cst operations
 * on a mapping need nothing of the kind. A full barrier: on aarch64, a load may pass an
 * atomic addition, and then the store before it. */
static void order_system_calls(void) {
    __sync_synchronize();
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

static void store(struct ds_ring *ring, uint64_t at, const void *from, size_t bytes) {
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
        store(ring, offset_of(ring, word), &value, sizeof value);
}

/* Life */

static int open_new(const char *path) {
    int fd = path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)
                  : memfd_create("dumpstream-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

static int allocate(int fd, bool in_file, uint64_t bytes) {
    /* Allocate the blocks now: a full disk must be an error here, not a SIGBUS in the callback. */
    if (in_file)
        return -posix_fallocate(fd, 0, (off_t)bytes);
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
}

/* -ENOMEM: there is not so much memory. A kernel before 5.14 does not say so: it kills the process. */
static int touch(uint8_t *base, uint64_t bytes) {
    madvise(base, bytes, MADV_HUGEPAGE);
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno == ENOMEM || errno == EFAULT) /* EFAULT: a write would raise SIGBUS */
        return -ENOMEM;
    for (uint64_t i = 0; i < bytes; i += DS_PAGE)
        *(volatile uint8_t *)(base + i) = 0;
    return 0;
}

static struct ds_lane lane_at(uint8_t *base, uint64_t start, struct ds_lane_positions *positions,
                              uint64_t size, uint64_t kept) {
    base = base ? base + start : NULL;
    return (struct ds_lane){.positions = positions, .base = base, .start = start, .size = size, .kept = kept};
}

static bool size_is_sound(uint64_t data_size) {
    return data_size >= DS_RING_MIN_BYTES && data_size <= DS_RING_MAX_BYTES;
}

static uint32_t least_record(uint64_t data_size) {
    uint64_t share = data_size / LEAST_RECORDS / DS_RECORD_ALIGN * DS_RECORD_ALIGN;
    return share < LEAST_RECORD_BYTES ? (uint32_t)share : LEAST_RECORD_BYTES;
}

/* Maps the ring in `fd`, or without `whole` only its control block, for futexes. */
static int map(struct ds_ring *ring, int fd, uint64_t data_size, bool whole) {
    uint64_t max_record = data_size / 8 / DS_RECORD_ALIGN * DS_RECORD_ALIGN;
    ring->mapped = whole ? ds_ring_bytes(data_size) : DS_CONTROL_BYTES;
    uint8_t *base = mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, ring->mapped, MADV_DONTFORK);
    ring->control = (struct ds_control *)(void *)base;
    ring->touched = data_size;
    ring->max_record = max_record > MAX_RECORD_BYTES ? MAX_RECORD_BYTES : (uint32_t)max_record;
    base = whole ? base : NULL;
    ring->notes =
        lane_at(base, DS_CONTROL_BYTES, &ring->control->notes, DS_NOTE_LANE_BYTES, DS_ABANDON_BYTES);
    ring->data = lane_at(base, ds_ring_bytes(0), &ring->control->data, data_size, 0);
    ring->data.least = least_record(data_size);
    return 0;
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

/* Destroys a ring that could not be made completely, and its file. Returns `error`. */
static int discard(struct ds_ring *ring, const char *path, int error) {
    ds_ring_destroy(ring);
    if (path)
        unlink(path);
    return error;
}

/* Makes a ring without a way to wake its reader. Its lanes are mapped only if `whole`. */
static int make(struct ds_ring *ring, uint64_t data_size, const char *path, bool whole) {
    struct ds_control control = {.magic = DS_RING_MAGIC,
                                 .version = DS_RING_VERSION,
                                 .note_size = DS_NOTE_LANE_BYTES,
                                 .wake_at = DS_NEVER};
    *ring = (struct ds_ring){.memory_fd = -1, .event_fd = -1};
    if (!size_is_sound(data_size))
        return -EINVAL;
    control.data_size = ds_align_up(data_size, DS_PAGE);
    ring->memory_fd = open_new(path);
    if (ring->memory_fd < 0)
        return ring->memory_fd;
    int error = allocate(ring->memory_fd, path, ds_ring_bytes(control.data_size));
    if (!error)
        error = map(ring, ring->memory_fd, control.data_size, whole);
    if (!error && getrandom(&control.nonce, sizeof control.nonce, 0) != (ssize_t)sizeof control.nonce)
        error = -EIO;
    if (!error && whole)
        error = touch((uint8_t *)ring->control, path ? ds_ring_bytes(0) : ring->mapped);
    if (error)
        return discard(ring, path, error);
    ring->nonce = control.nonce;
    store(ring, 0, &control, sizeof control);
    return 0;
}

static void wake_by_event(struct ds_ring *ring) {
    uint64_t one = 1;
    ssize_t written = write(ring->event_fd, &one, sizeof one);
    (void)written; /* only fails if the descriptor is readable already */
}

void ds_ring_wake_by(struct ds_ring *ring, int event_fd) {
    ring->wake = wake_by_event;
    ring->event_fd = event_fd;
}

int ds_ring_create(struct ds_ring *ring, uint64_t data_size, const char *path) {
    int error = make(ring, data_size, path, true);
    if (error)
        return error;
    ds_ring_wake_by(ring, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
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

static bool control_is_sound(const struct ds_control *control, uint64_t data_size, uint64_t oldest) {
    return control->magic == DS_RING_MAGIC && control->version >= oldest &&
           control->version <= DS_RING_VERSION && control->data_size == data_size &&
           control->note_size == DS_NOTE_LANE_BYTES;
}

int ds_ring_map(struct ds_ring *ring, int fd, uint64_t data_size) {
    bool in_memory;
    *ring = (struct ds_ring){.memory_fd = -1, .event_fd = -1};
    if (!size_is_sound(data_size) || data_size % DS_PAGE ||
        !is_ring(fd, ds_ring_bytes(data_size), &in_memory))
        return -EBADMSG;
    int error = map(ring, fd, data_size, true);
    if (error)
        return error;
    if (in_memory) /* its maker has touched all pages; a file may be larger than memory */
        ring->touched = 0;
    ring->nonce = ring->control->nonce;
    if (control_is_sound(ring->control, data_size, DS_RING_VERSION))
        return 0;
    ds_ring_destroy(ring);
    return -EBADMSG;
}

/* Readers */

int ds_reader_create(struct ds_reader *reader, uint64_t data_size, const char *path) {
    *reader = (struct ds_reader){0};
    int error = make(&reader->ring, data_size, path, !path);
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

static bool file_is_sound(const struct ds_control *control, uint64_t file_bytes) {
    uint64_t size = control->data_size;
    return size_is_sound(size) && size % DS_PAGE == 0 && file_bytes == ds_ring_bytes(size) &&
           control_is_sound(control, size, DS_RING_WITHOUT_MARKS) && lane_is_sound(&control->data, size) &&
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
    if (!file_is_sound(&control, (uint64_t)status.st_size))
        return -EBADMSG;
    int error = map(ring, ring->memory_fd, control.data_size, false);
    if (control.version <= DS_RING_WITHOUT_LEAST)
        ring->data.least = 0;
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
