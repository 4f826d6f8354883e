/* The memory and the files of readers. */
#include "reader_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring_layout.h"

/* Access */

/* Orders what a system call did to the file before what comes next. seq_cst operations
 * on a mapping need nothing of the kind. */
static void order_system_calls(void) {
    static _Atomic uint32_t word;
    atomic_fetch_add_explicit(&word, 0, memory_order_seq_cst);
}

void ds_reader_load(const struct ds_reader *reader, uint64_t at, void *to, size_t bytes) {
    size_t done = 0;
    if (!reader->in_file) {
        memcpy(to, (const uint8_t *)reader->ring.control + at, bytes);
        return;
    }
    while (done < bytes) {
        ssize_t got = pread(reader->ring.memory_fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EINTR)
            break;
    }
    memset((uint8_t *)to + done, 0, bytes - done);
    order_system_calls();
}

static void store(struct ds_reader *reader, uint64_t at, const void *from, size_t bytes) {
    ssize_t written = pwrite(reader->ring.memory_fd, from, bytes, (off_t)at);
    (void)written; /* it only fails in a damaged file, and only the producer that damaged it waits */
    order_system_calls();
}

uint64_t ds_reader_load_word(const struct ds_reader *reader, uint64_t at) {
    uint64_t value;
    if (!reader->in_file)
        return atomic_load((_Atomic uint64_t *)(void *)((uint8_t *)reader->ring.control + at));
    ds_reader_load(reader, at, &value, sizeof value);
    return value;
}

void ds_reader_store_word(struct ds_reader *reader, uint64_t at, uint64_t value) {
    if (reader->in_file)
        store(reader, at, &value, sizeof value);
    else
        atomic_store((_Atomic uint64_t *)(void *)((uint8_t *)reader->ring.control + at), value);
}

uint32_t ds_reader_load_waiters(const struct ds_reader *reader) {
    uint32_t value;
    if (!reader->in_file)
        return atomic_load(&reader->ring.control->waiters);
    ds_reader_load(reader, offsetof(struct ds_control, waiters), &value, sizeof value);
    return value;
}

void ds_reader_store_state(struct ds_reader *reader, enum ds_state state) {
    uint32_t value = state;
    if (reader->in_file)
        store(reader, offsetof(struct ds_control, state), &value, sizeof value);
    else
        atomic_store(&reader->ring.control->state, value);
}

/* Life */

static int map_control(struct ds_reader *reader, uint64_t data_size) {
    struct ds_ring *ring = &reader->ring;
    ring->mapped = DS_CONTROL_BYTES;
    void *base = mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memory_fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, ring->mapped, MADV_DONTFORK);
    ds_ring_lay_out(ring, base, NULL, data_size);
    return 0;
}

static int create_file(struct ds_reader *reader, uint64_t data_size, const char *path) {
    struct ds_control control;
    struct ds_ring *ring = &reader->ring;
    if (data_size < DS_RING_MIN_BYTES || data_size > DS_RING_MAX_BYTES)
        return -EINVAL;
    data_size = ds_align_up(data_size, DS_PAGE);
    ring->memory_fd = ds_ring_open_file(path, ds_ring_bytes(data_size));
    if (ring->memory_fd < 0)
        return ring->memory_fd;
    int error = ds_control_init(&control, data_size);
    if (!error)
        error = map_control(reader, data_size);
    if (error) {
        close(ring->memory_fd);
        unlink(path);
        return error;
    }
    ring->nonce = control.nonce;
    store(reader, 0, &control, sizeof control);
    return 0;
}

int ds_reader_create(struct ds_reader *reader, uint64_t data_size, const char *path) {
    *reader = (struct ds_reader){.in_file = path != NULL, .ring = {.event_fd = -1}};
    if (path)
        return create_file(reader, data_size, path);
    int error = ds_ring_make(&reader->ring, data_size, NULL);
    if (!error &&
        fcntl(reader->ring.memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
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
    return size >= DS_RING_MIN_BYTES && size <= DS_RING_MAX_BYTES && size % DS_PAGE == 0 &&
           file_bytes == ds_ring_bytes(size) && ds_control_is_sound(control, size) &&
           lane_is_sound(&control->data, size) && lane_is_sound(&control->notes, DS_NOTE_LANE_BYTES);
}

static int resume(struct ds_reader *reader) {
    struct stat status;
    struct ds_control control;
    struct ds_ring *ring = &reader->ring;
    if (fstat(ring->memory_fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EBADMSG;
    ds_reader_load(reader, 0, &control, sizeof control);
    if (!control_is_sound(&control, (uint64_t)status.st_size))
        return -EBADMSG;
    int error = map_control(reader, control.data_size);
    ring->nonce = control.nonce;
    ring->data.read = reader->freed = atomic_load(&control.data.tail);
    ring->notes.read = atomic_load(&control.notes.tail);
    return error;
}

int ds_reader_resume(struct ds_reader *reader, const char *path) {
    *reader = (struct ds_reader){.in_file = true, .resumed = true, .ring = {.event_fd = -1}};
    /* O_NONBLOCK: opening a pipe of that name would wait. */
    reader->ring.memory_fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (reader->ring.memory_fd < 0)
        return -errno;
    int error = resume(reader);
    if (error)
        close(reader->ring.memory_fd);
    return error;
}

void ds_reader_destroy(struct ds_reader *reader) {
    ds_ring_destroy(&reader->ring);
}
