#include "dumpstream/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_MAGIC 0x676e697273706d64u /* "dmpsring" */
#define RING_VERSION 1u
#define LONGEST_NOTE                                                                                         \
    ((sizeof(struct ds_record) + DS_NAME_MAX + DS_RECORD_ALIGN - 1) / DS_RECORD_ALIGN * DS_RECORD_ALIGN)
#define ABANDON_BYTES (48u << 10)
#define NOTE_LANE_BYTES ((64u << 10) + ABANDON_BYTES)
#define PAGE 4096u
#define NEVER UINT64_MAX
/* A waiting producer looks up this often even if nobody wakes it. */
#define WAIT_SLICE_NS 50000000u

#define CONTROL_BYTES ((sizeof(struct ds_control) + PAGE - 1) / PAGE * PAGE)

/* Other notes leave this much; a lap has one padding, shorter than a note. */
_Static_assert((DS_ABANDON_MAX + 1) * LONGEST_NOTE <= ABANDON_BYTES, "every reserved note finds space");

static uint64_t align_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

uint64_t ds_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t stamp_of(const struct ds_ring *ring, uint64_t position) {
    return (position ^ ring->nonce) | 1u;
}

static struct ds_record *record_at(const struct ds_lane *lane, uint64_t position) {
    return (struct ds_record *)(void *)(lane->base + position % lane->size);
}

/* Creation */

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
    /* Blocks now: a full disk must be an error here, not a SIGBUS in the callback. */
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
    for (uint64_t i = 0; i < bytes; i += PAGE)
        *(volatile uint8_t *)(base + i) = 0;
}

static void lane_init(struct ds_lane *lane, struct ds_lane_positions *positions, uint8_t *base, uint64_t size,
                      uint64_t kept) {
    lane->positions = positions;
    lane->base = base;
    lane->size = size;
    lane->kept = kept;
    lane->read = 0;
}

int ds_ring_create(struct ds_ring *ring, uint64_t data_size, const char *path) {
    memset(ring, 0, sizeof *ring);
    if (data_size < DS_RING_MIN_BYTES || data_size > (uint64_t)1 << 46)
        return -EINVAL;
    data_size = align_up(data_size, PAGE);
    ring->mapped = CONTROL_BYTES + NOTE_LANE_BYTES + data_size;
    if (getrandom(&ring->nonce, sizeof ring->nonce, 0) != (ssize_t)sizeof ring->nonce)
        return -EIO;

    ring->memory_fd = path ? open_file(path, ring->mapped) : open_memory(ring->mapped);
    if (ring->memory_fd < 0)
        return ring->memory_fd;
    uint8_t *base = mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memory_fd, 0);
    ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (base == MAP_FAILED || ring->event_fd < 0) {
        int error = -errno;
        if (base != MAP_FAILED)
            munmap(base, ring->mapped);
        if (ring->event_fd >= 0)
            close(ring->event_fd);
        close(ring->memory_fd);
        if (path)
            unlink(path);
        return error;
    }
    madvise(base, ring->mapped, MADV_DONTFORK);
    touch(base, path ? CONTROL_BYTES + NOTE_LANE_BYTES : ring->mapped);

    struct ds_control *control = ring->control = (struct ds_control *)(void *)base;
    control->magic = RING_MAGIC;
    control->version = RING_VERSION;
    control->data_size = data_size;
    control->note_size = NOTE_LANE_BYTES;
    control->nonce = ring->nonce;
    atomic_store(&control->wake_at, NEVER);
    lane_init(&ring->notes, &control->notes, base + CONTROL_BYTES, NOTE_LANE_BYTES, ABANDON_BYTES);
    lane_init(&ring->data, &control->data, base + CONTROL_BYTES + NOTE_LANE_BYTES, data_size, 0);

    uint64_t max_record = data_size / 8 / DS_RECORD_ALIGN * DS_RECORD_ALIGN;
    ring->max_record = max_record > (1u << 30) ? 1u << 30 : (uint32_t)max_record;
    return 0;
}

void ds_ring_destroy(struct ds_ring *ring) {
    munmap(ring->control, ring->mapped);
    close(ring->event_fd);
    close(ring->memory_fd);
    ring->control = NULL;
}

/* Producers */

static int claim(struct ds_ring *ring, struct ds_lane *lane, uint32_t need, uint32_t flags,
                 uint64_t *position) {
    uint64_t size = flags & DS_RECORD_ABANDON ? lane->size : lane->size - lane->kept;
    uint64_t head = atomic_load_explicit(&lane->positions->head, memory_order_relaxed);
    uint64_t pad;
    do {
        /* With the store in ds_ring_free: the reader's last look at these bytes
         * comes before our first write to them; seq_cst for push_wait. */
        uint64_t tail = atomic_load_explicit(&lane->positions->tail, memory_order_seq_cst);
        uint64_t rest = lane->size - head % lane->size;
        pad = need > rest ? rest : 0;
        if (head + pad + need > tail + size)
            return -EAGAIN;
        /* Padding and record in one claim, so nobody can come between them. */
    } while (!atomic_compare_exchange_weak_explicit(&lane->positions->head, &head, head + pad + need,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (pad) {
        struct ds_record *filler = record_at(lane, head);
        filler->length = (uint32_t)pad;
        filler->flags = DS_RECORD_PAD;
        atomic_store_explicit(&filler->stamp, stamp_of(ring, head), memory_order_release);
    }
    *position = head + pad;
    return 0;
}

static void wake_reader(struct ds_ring *ring, uint64_t end) {
    struct ds_control *control = ring->control;
    /* seq_cst, with the store in ds_ring_arm: either the reader sees our stamp
     * after arming, or we see that it has armed. */
    uint64_t wake_at = atomic_load_explicit(&control->wake_at, memory_order_seq_cst);
    if (end < wake_at || wake_at == NEVER)
        return;
    if (!atomic_compare_exchange_strong(&control->wake_at, &wake_at, NEVER))
        return; /* another producer wakes it, or the reader is up */
    atomic_fetch_add_explicit(&control->wakeups, 1, memory_order_relaxed);
    uint64_t one = 1;
    ssize_t written = write(ring->event_fd, &one, sizeof one);
    (void)written; /* only fails when it is readable already */
}

static uint32_t data_start(uint32_t name_length) {
    return (uint32_t)align_up(sizeof(struct ds_record) + name_length, DS_RECORD_ALIGN);
}

static uint64_t record_length(uint32_t name_length, uint32_t data_length) {
    return align_up((uint64_t)data_start(name_length) + data_length, DS_RECORD_ALIGN);
}

int ds_ring_push(struct ds_ring *ring, struct ds_lane *lane, const struct ds_message *message) {
    uint32_t at = data_start(message->name_length);
    uint32_t need = (uint32_t)record_length(message->name_length, message->data_length);
    uint64_t position;
    int error = claim(ring, lane, need, message->flags, &position);
    if (error)
        return error;

    struct ds_record *record = record_at(lane, position);
    record->length = need;
    record->flags = message->flags;
    record->sequence = message->sequence;
    record->offset = message->offset;
    record->name_length = message->name_length;
    record->data_length = message->data_length;
    record->flag = message->flag;
    record->reserved = 0;
    memcpy(record + 1, message->name, message->name_length);
    if (message->data_length)
        memcpy((uint8_t *)record + at, message->data, message->data_length);
    /* seq_cst: also ordered before the load in wake_reader. */
    atomic_store_explicit(&record->stamp, stamp_of(ring, position), memory_order_seq_cst);
    if (lane == &ring->data)
        wake_reader(ring, position + need);
    return 0;
}

bool ds_ring_reserve_abandon(struct ds_ring *ring) {
    _Atomic uint32_t *abandons = &ring->control->abandons;
    uint32_t count = atomic_load_explicit(abandons, memory_order_relaxed);
    do {
        if (count >= DS_ABANDON_MAX)
            return false;
        /* acquire, with ds_ring_return_abandon: the tail is seen behind the note
         * whose place we take. */
    } while (!atomic_compare_exchange_weak_explicit(abandons, &count, count + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

void ds_ring_return_abandon(struct ds_ring *ring) {
    atomic_fetch_sub_explicit(&ring->control->abandons, 1, memory_order_release);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word) {
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int ds_ring_push_wait(struct ds_ring *ring, const struct ds_message *message, uint64_t deadline_ns) {
    struct ds_control *control = ring->control;
    int result;
    atomic_fetch_add(&control->waiters, 1);
    for (;;) {
        /* Read before trying: a change after this makes the wait return at once. */
        uint32_t seen = atomic_load(&control->freed);
        if (atomic_load(&control->state) != DS_STATE_OPEN) {
            result = -EPIPE;
            break;
        }
        result = ds_ring_push(ring, &ring->data, message);
        if (result != -EAGAIN)
            break;
        uint64_t now = ds_clock_ns();
        if (now >= deadline_ns) {
            result = -ETIMEDOUT;
            break;
        }
        uint64_t left = deadline_ns - now;
        futex_wait(&control->freed, seen, left < WAIT_SLICE_NS ? left : WAIT_SLICE_NS);
    }
    atomic_fetch_sub(&control->waiters, 1);
    return result;
}

void ds_ring_set_state(struct ds_ring *ring, enum ds_state state) {
    atomic_store(&ring->control->state, state);
    futex_wake_all(&ring->control->freed);
}

/* Reader */

int ds_ring_peek(const struct ds_ring *ring, const struct ds_lane *lane, uint64_t *position,
                 struct ds_view *view) {
    const uint32_t known = DS_RECORD_LAST | (lane == &ring->notes ? DS_RECORD_ABANDON : DS_RECORD_MORE);
    for (;;) {
        const struct ds_record *record = record_at(lane, *position);
        /* seq_cst, with the store in ds_ring_push: see wake_reader. */
        if (atomic_load_explicit(&record->stamp, memory_order_seq_cst) != stamp_of(ring, *position))
            return 0;
        uint64_t rest = lane->size - *position % lane->size;
        uint32_t length = *(const volatile uint32_t *)&record->length;
        uint32_t flags = *(const volatile uint32_t *)&record->flags;
        if (length == 0 || length % DS_RECORD_ALIGN || length > rest)
            return -EBADMSG;
        if (flags & DS_RECORD_PAD) {
            if (length != rest)
                return -EBADMSG;
            *position += length;
            continue;
        }
        if (length < sizeof *record || flags & ~known)
            return -EBADMSG;
        view->name_length = *(const volatile uint32_t *)&record->name_length;
        view->data_length = *(const volatile uint32_t *)&record->data_length;
        view->offset = *(const volatile int64_t *)&record->offset;
        if (view->name_length == 0 || view->name_length > DS_NAME_MAX)
            return -EBADMSG;
        if (length != record_length(view->name_length, view->data_length))
            return -EBADMSG;
        if (view->offset < -1 || view->offset > INT64_MAX - (int64_t)view->data_length)
            return -EBADMSG;
        view->name = (const char *)(record + 1);
        view->data = (const uint8_t *)record + data_start(view->name_length);
        view->flags = flags;
        view->sequence = record->sequence;
        view->flag = record->flag;
        view->position = *position;
        *position += length;
        view->end = *position;
        return 1;
    }
}

void ds_ring_free(struct ds_ring *ring, struct ds_lane *lane, uint64_t position) {
    struct ds_control *control = ring->control;
    /* seq_cst: release for claim(), and ordered before the load of waiters, so
     * that a producer which found no space is seen waiting. */
    atomic_store_explicit(&lane->positions->tail, position, memory_order_seq_cst);
    if (lane == &ring->data && atomic_load(&control->waiters))
        futex_wake_all(&control->freed);
}

bool ds_ring_arm(struct ds_ring *ring, uint64_t distance) {
    struct ds_view view;
    uint64_t position = ring->data.read;
    /* seq_cst, with the load in wake_reader. */
    atomic_store_explicit(&ring->control->wake_at, position + distance, memory_order_seq_cst);
    if (ds_ring_peek(ring, &ring->data, &position, &view) == 0)
        return false;
    ds_ring_disarm(ring);
    return true;
}

void ds_ring_disarm(struct ds_ring *ring) {
    atomic_store(&ring->control->wake_at, NEVER);
    uint64_t count;
    ssize_t taken = read(ring->event_fd, &count, sizeof count);
    (void)taken; /* nothing to take unless a producer has just written */
}
