#include "ring_layout.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_NOTE                                                                                         \
    ((sizeof(struct ds_record) + DS_NAME_MAX + DS_RECORD_ALIGN - 1) / DS_RECORD_ALIGN * DS_RECORD_ALIGN)
/* What the kernel enters in the page tables at once around the page of a read, by default. */
#define AROUND (64u << 10)
/* A waiting producer looks again after this time even if it is not woken. */
#define WAIT_SLICE_NS 50000000u

/* Other notes leave this much space. A lap has one pad, which is shorter than a note. */
_Static_assert((DS_ABANDON_MAX + 1) * LONGEST_NOTE <= DS_ABANDON_BYTES, "every reserved note finds space");

uint64_t ds_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Producers */

static int claim(struct ds_ring *ring, struct ds_lane *lane, uint32_t need, uint32_t flags,
                 uint64_t *position) {
    uint64_t size = flags & DS_RECORD_ABANDON ? lane->size : lane->size - lane->kept;
    uint64_t head = atomic_load_explicit(&lane->positions->head, memory_order_relaxed);
    uint64_t pad;
    do {
        if (head % DS_RECORD_ALIGN)
            return -EBADMSG; /* another process has damaged it: a record might leave the lane */
        /* Pairs with the store in ds_ring_free: the reader's last look at these bytes
         * comes before the producer's first write to them. seq_cst for push_wait. */
        uint64_t tail = atomic_load_explicit(&lane->positions->tail, memory_order_seq_cst);
        uint64_t rest = lane->size - head % lane->size;
        pad = need > rest ? rest : 0;
        if (head + pad + need > tail + size)
            return -EAGAIN;
        /* Pad and record in one claim, so that no other producer comes between them. release,
         * pairs with the load in ds_reader_take: if the reader sees this claim, it also sees the
         * notes that this thread pushed before. */
    } while (!atomic_compare_exchange_weak_explicit(&lane->positions->head, &head, head + pad + need,
                                                    memory_order_release, memory_order_relaxed));
    if (pad) {
        struct ds_record *filler = ds_record_at(lane, head);
        filler->length = (uint32_t)pad;
        filler->flags = DS_RECORD_PAD;
        atomic_store_explicit(&filler->stamp, ds_stamp(ring->nonce, head), memory_order_release);
    }
    *position = head + pad;
    return 0;
}

static void wake_reader(struct ds_ring *ring, uint64_t end) {
    struct ds_control *control = ring->control;
    /* seq_cst, pairs with the store in ds_ring_arm: either the reader sees the stamp
     * after it has armed, or this producer sees that the reader has armed. */
    uint64_t wake_at = atomic_load_explicit(&control->wake_at, memory_order_seq_cst);
    if (end < wake_at || wake_at == DS_NEVER)
        return;
    if (!atomic_compare_exchange_strong(&control->wake_at, &wake_at, DS_NEVER))
        return; /* another producer wakes the reader, or it is awake */
    atomic_fetch_add_explicit(&control->wakeups, 1, memory_order_relaxed);
    ring->wake(ring);
}

static uint32_t data_start(uint32_t name_length) {
    return (uint32_t)ds_align_up(sizeof(struct ds_record) + name_length, DS_RECORD_ALIGN);
}

static uint64_t record_length(const struct ds_lane *lane, uint32_t name_length, uint32_t data_length) {
    uint64_t length = ds_align_up((uint64_t)data_start(name_length) + data_length, DS_RECORD_ALIGN);
    return length > lane->least ? length : lane->least;
}

/* Enters the pages from `position` on in the page tables, if they are new to this process. They are in memory
 * already. A write would enter its own page alone, which takes seven times as long. Reads only what the
 * caller has claimed: others may write beside it. */
static void touch(struct ds_ring *ring, uint64_t position, uint64_t length) {
    uint64_t at = position % ring->data.size, end = at + length;
    uint64_t touched = atomic_load_explicit(&ring->touched, memory_order_relaxed);
    if (end <= touched)
        return;
    at = at < touched ? touched : at;
    while (at < end) {
        const uint8_t *byte = ring->data.base + at;
        (void)*(const volatile uint8_t *)byte;
        at += AROUND - (uintptr_t)byte % AROUND;
    }
    /* Another producer may store less at the same time: then a few reads are made again. */
    atomic_store_explicit(&ring->touched, at, memory_order_relaxed);
}

void ds_ring_touch(struct ds_ring *ring) {
    touch(ring, 0, ring->data.size);
}

int ds_ring_push(struct ds_ring *ring, struct ds_lane *lane, const struct ds_message *message) {
    uint32_t at = data_start(message->name_length);
    uint32_t need = (uint32_t)record_length(lane, message->name_length, message->data_length);
    uint64_t position;
    int error = claim(ring, lane, need, message->flags, &position);
    if (error)
        return error;

    struct ds_record *record = ds_record_at(lane, position);
    if (lane == &ring->data)
        touch(ring, position, need);
    record->length = need;
    record->flags = message->flags;
    record->sequence = message->sequence;
    record->offset = message->offset;
    record->name_length = message->name_length;
    record->data_length = message->data_length;
    record->flag = message->flag;
    record->reserved = 0;
    if (message->name_length)
        memcpy(record + 1, message->name, message->name_length);
    if (message->data_length)
        memcpy((uint8_t *)record + at, message->data, message->data_length);
    /* seq_cst: also ordered before the load in wake_reader. */
    atomic_store_explicit(&record->stamp, ds_stamp(ring->nonce, position), memory_order_seq_cst);
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
        /* acquire, pairs with ds_ring_return_abandon: this producer sees the tail past
         * the note that it takes the place of. */
    } while (!atomic_compare_exchange_weak_explicit(abandons, &count, count + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* Changes a word of the control block and wakes all that wait for it. The kernel changes it:
 * in a file that was truncated it returns an error, where a store would raise SIGBUS. */
static void change_and_wake(_Atomic uint32_t *word, unsigned operation, int operand) {
    const uint32_t change = FUTEX_OP(operation, (uint32_t)operand & 0xfff, FUTEX_OP_CMP_EQ, 0);
    syscall(SYS_futex, word, FUTEX_WAKE_OP, INT_MAX, 0, word, change);
}

void ds_ring_return_abandon(struct ds_ring *ring) {
    if (ring->data.base)
        atomic_fetch_sub_explicit(&ring->control->abandons, 1, memory_order_release);
    else
        change_and_wake(&ring->control->abandons, FUTEX_OP_ADD, -1);
}

static int push_until(struct ds_ring *ring, const struct ds_message *message, uint64_t deadline_ns) {
    struct ds_control *control = ring->control;
    for (;;) {
        /* Read before the push: if it changes after this, the wait returns at once. */
        uint32_t seen = atomic_load(&control->freed);
        if (atomic_load(&control->state) != DS_STATE_OPEN)
            return -EPIPE;
        int result = ds_ring_push(ring, &ring->data, message);
        if (result != -EAGAIN)
            return result;
        uint64_t now = ds_clock_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        if (ring->reader_alive && !ring->reader_alive(ring))
            return -EPIPE;
        uint64_t left = deadline_ns - now;
        futex_wait(&control->freed, seen, left < WAIT_SLICE_NS ? left : WAIT_SLICE_NS);
    }
}

int ds_ring_push_wait(struct ds_ring *ring, const struct ds_message *message, uint64_t deadline_ns) {
    atomic_fetch_add(&ring->control->waiters, 1);
    int result = push_until(ring, message, deadline_ns);
    atomic_fetch_sub(&ring->control->waiters, 1);
    return result;
}

void ds_ring_set_state(struct ds_ring *ring, enum ds_state state) {
    change_and_wake(&ring->control->state, FUTEX_OP_SET, (int)state);
    change_and_wake(&ring->control->freed, FUTEX_OP_ADD, 1);
}

/* Reader */

/* Whether the numbers of a message, which are copies, may be those of a record with its flags. */
static bool is_plausible(const struct ds_message *message) {
    if (message->flags & DS_RECORD_MARK)
        return message->flags == DS_RECORD_MARK && !message->name_length && !message->data_length &&
               message->offset >= 0 && message->offset <= DS_STEP_MAX;
    return message->name_length > 0 && message->name_length <= DS_NAME_MAX && message->offset >= -1 &&
           message->offset <= INT64_MAX - (int64_t)message->data_length;
}

/* The flags that a record of the lane may have. */
static uint32_t known_flags(const struct ds_ring *ring, const struct ds_lane *lane) {
    return DS_RECORD_LAST | (lane == &ring->notes ? DS_RECORD_ABANDON : DS_RECORD_MORE | DS_RECORD_MARK);
}

int ds_record_read(const struct ds_ring *ring, const struct ds_lane *lane, const struct ds_record *record,
                   uint64_t rest, uint64_t *position, struct ds_message *message) {
    uint32_t flags = *(const volatile uint32_t *)&record->flags;
    uint32_t length = *(const volatile uint32_t *)&record->length;
    if (length == 0 || length % DS_RECORD_ALIGN || length > rest)
        return -EBADMSG;
    if (flags & DS_RECORD_PAD) {
        if (length != rest)
            return -EBADMSG;
        *position += length;
        return 0;
    }
    if (length < sizeof *record || flags & ~known_flags(ring, lane))
        return -EBADMSG;
    message->name_length = *(const volatile uint32_t *)&record->name_length;
    message->data_length = *(const volatile uint32_t *)&record->data_length;
    message->offset = *(const volatile int64_t *)&record->offset;
    message->flags = flags;
    if (!is_plausible(message) || length != record_length(lane, message->name_length, message->data_length))
        return -EBADMSG;
    *position += length;
    message->name = (const char *)(record + 1);
    message->data = (const uint8_t *)record + data_start(message->name_length);
    message->sequence = record->sequence;
    message->flag = record->flag;
    return 1;
}

int ds_ring_peek(const struct ds_ring *ring, const struct ds_lane *lane, uint64_t *position,
                 struct ds_message *message) {
    for (int pads = 0; pads <= 1; pads++) {
        struct ds_record head;
        const struct ds_record *record = &head;
        uint64_t offset = *position % lane->size, rest = lane->size - offset;
        if (lane->base)
            record = (const void *)(lane->base + offset);
        else
            ds_ring_load(ring, lane->start + offset, &head.stamp, sizeof head.stamp);
        /* seq_cst, pairs with the store in ds_ring_push: see wake_reader. */
        if (atomic_load_explicit(&record->stamp, memory_order_seq_cst) != ds_stamp(ring->nonce, *position))
            return 0;
        if (!lane->base) /* now that the stamp is known to be there */
            ds_ring_load(ring, lane->start + offset, &head, rest < sizeof head ? rest : sizeof head);
        int found = ds_record_read(ring, lane, record, rest, position, message);
        if (found)
            return found;
    }
    return -EBADMSG; /* a lap has one pad */
}

static bool has_waiters(const struct ds_ring *ring) {
    uint32_t waiters;
    if (ring->data.base)
        return atomic_load(&ring->control->waiters);
    ds_ring_load(ring, offsetof(struct ds_control, waiters), &waiters, sizeof waiters);
    return waiters;
}

void ds_ring_free(struct ds_ring *ring, struct ds_lane *lane, uint64_t position) {
    lane->freed = position;
    /* seq_cst: release for claim(), and ordered before the load of waiters, so that
     * the reader sees a producer that found no space and waits. */
    ds_word_store(ring, &lane->positions->tail, position);
    if (lane == &ring->data && has_waiters(ring))
        change_and_wake(&ring->control->freed, FUTEX_OP_ADD, 1);
}

bool ds_ring_arm(struct ds_ring *ring, uint64_t distance) {
    struct ds_message message;
    uint64_t position = ring->data.read;
    /* seq_cst, pairs with the load in wake_reader. */
    ds_word_store(ring, &ring->control->wake_at, position + distance);
    if (ds_ring_peek(ring, &ring->data, &position, &message) == 0)
        return false;
    ds_ring_disarm(ring);
    return true;
}

void ds_ring_disarm(struct ds_ring *ring) {
    ds_word_store(ring, &ring->control->wake_at, DS_NEVER);
    uint64_t count;
    ssize_t taken = ring->event_fd < 0 ? 0 : read(ring->event_fd, &count, sizeof count);
    (void)taken; /* there is nothing to read unless a producer has just written */
}

void ds_ring_count(const struct ds_ring *ring, struct ds_counters *counters) {
    struct ds_control copy;
    const struct ds_control *control = ring->control;
    if (!ring->data.base) {
        ds_ring_load(ring, 0, &copy, sizeof copy);
        control = &copy;
    }
    uint64_t tail = atomic_load(&control->data.tail);
    counters->fill = atomic_load(&control->data.head) - tail;
    counters->callbacks = atomic_load(&control->callbacks);
    counters->wakeups = atomic_load(&control->wakeups);
    counters->unnamed = atomic_load(&control->unnamed_chunks);
    for (unsigned cause = 0; cause < DS_CAUSE_COUNT; cause++) {
        counters->lost_chunks[cause] = atomic_load(&control->lost_chunks[cause]);
        counters->lost_bytes[cause] = atomic_load(&control->lost_bytes[cause]);
    }
}
