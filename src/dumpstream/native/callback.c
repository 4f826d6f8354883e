#include "dumpstream/callback.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "refused_files.h"
#include "spin_lock.h"

#define REFUSED (-1)
#define NO_POSITION UINT64_MAX
#define ALIVE_PAGE 4096u

static _Atomic(struct ds_ring *) active;
static struct ds_policy active_policy;
static _Atomic int64_t inside; /* calls that may be using the active ring */
static _Atomic uint64_t late_calls;
static _Atomic uint64_t stalled_at; /* the tail when the last wait that timed out began */

/* The latest mark, until it is in the ring. The lock is held to read or write it, never across
 * a push. */
static struct ds_message latest_mark;
static _Atomic bool mark_waits;
static atomic_flag mark_lock = ATOMIC_FLAG_INIT;

/* A page that reads 1 here and 0 in a forked child, however the child was made:
 * pthread_atfork does not notice a raw clone. NULL before the first attach. */
static _Atomic(_Atomic uint8_t *) alive;

bool ds_forked(void) {
    /* acquire, pairs with the store in make_alive_page: this thread sees the page complete. */
    _Atomic uint8_t *page = atomic_load_explicit(&alive, memory_order_acquire);
    return page && !atomic_load_explicit(page, memory_order_relaxed);
}

uint64_t ds_late_calls(void) {
    return atomic_load(&late_calls);
}

/* Losses */

/* Tells the reader about a loss. False: the note lane is full. */
static bool note_loss(struct ds_ring *ring, enum ds_cause cause, const struct ds_message *chunk,
                      uint64_t bytes, uint32_t flags) {
    struct ds_message note = {
        .name = chunk->name,
        .name_length = chunk->name_length,
        /* The reader applies the note when it has read the data up to here. */
        .sequence = atomic_load(&ring->data.positions->head),
        .offset = bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX,
        .flags = flags,
        .flag = (int32_t)cause,
    };
    return ds_ring_push(ring, &ring->notes, &note) == 0;
}

static void count_loss(struct ds_ring *ring, enum ds_cause cause, uint64_t bytes) {
    atomic_fetch_add(&ring->control->lost_chunks[cause], 1);
    atomic_fetch_add(&ring->control->lost_bytes[cause], bytes);
}

static int32_t lose_unnamed(struct ds_ring *ring, enum ds_cause cause, uint64_t bytes) {
    count_loss(ring, cause, bytes);
    atomic_fetch_add(&ring->control->unnamed_chunks, 1);
    return REFUSED;
}

/* `flags` are the note's: LAST and ABANDON. */
static int32_t lose(struct ds_ring *ring, enum ds_cause cause, const struct ds_message *chunk, uint64_t bytes,
                    uint32_t flags) {
    count_loss(ring, cause, bytes);
    bool remembered = flags & DS_RECORD_LAST || remember_refused(chunk->name, chunk->name_length);
    bool noted = note_loss(ring, cause, chunk, bytes, flags);
    if (!remembered || !noted)
        atomic_fetch_add(&ring->control->unnamed_chunks, 1);
    return REFUSED;
}

/* Whether the chunk belongs to a file that has lost one before. */
static bool refuse_rest(struct ds_ring *ring, const struct ds_message *chunk, uint64_t bytes, uint32_t last) {
    uint64_t total;
    if (!count_refused(chunk->name, chunk->name_length, bytes, last, &total))
        return false;
    count_loss(ring, DS_CAUSE_AFTER_LOSS, bytes);
    if (last && !note_loss(ring, DS_CAUSE_AFTER_LOSS, chunk, total, DS_RECORD_LAST))
        atomic_fetch_add(&ring->control->unnamed_chunks, 1);
    return true;
}

void ds_note_refused(struct ds_ring *ring) {
    for (uint32_t i = 0; i < DS_REFUSED_MAX; i++) {
        struct ds_message file = {0};
        uint64_t bytes;
        if (ds_refused_file(i, &file.name, &file.name_length, &bytes) &&
            !note_loss(ring, DS_CAUSE_AFTER_LOSS, &file, bytes, DS_RECORD_LAST))
            atomic_fetch_add(&ring->control->unnamed_chunks, 1);
    }
}

/* Copying */

static int push_record(struct ds_ring *ring, const struct ds_message *message) {
    int result = ds_ring_push(ring, &ring->data, message);
    if (result != -EAGAIN || !active_policy.block)
        return result;
    uint64_t tail = atomic_load(&ring->data.positions->tail);
    if (tail == atomic_load(&stalled_at))
        return -ETIMEDOUT; /* the reader has not moved since the last wait timed out */
    result = ds_ring_push_wait(ring, message, ds_clock_ns() + active_policy.block_limit_ns);
    if (result == -ETIMEDOUT)
        atomic_store(&stalled_at, tail);
    return result;
}

static enum ds_cause cause_of(int error) {
    return error == -ETIMEDOUT ? DS_CAUSE_TIMEOUT : error == -EPIPE ? DS_CAUSE_DISCARDED : DS_CAUSE_FULL;
}

/* Marks */

/* Pushes the mark that waits, if one does. Several threads may push the same one, and one of
 * them after a newer mark: the reader goes by the sequence. */
static int flush_mark(struct ds_ring *ring, int (*push)(struct ds_ring *, const struct ds_message *)) {
    /* acquire, pairs with the store below: what this thread pushes comes behind the mark. */
    if (!atomic_load_explicit(&mark_waits, memory_order_acquire))
        return 0;
    spin_lock(&mark_lock);
    struct ds_message mark = latest_mark;
    spin_unlock(&mark_lock);
    int error = push(ring, &mark);
    if (error)
        return error;
    spin_lock(&mark_lock);
    if (latest_mark.sequence == mark.sequence)
        atomic_store_explicit(&mark_waits, false, memory_order_release);
    spin_unlock(&mark_lock);
    return 0;
}

static int push_now(struct ds_ring *ring, const struct ds_message *message) {
    return ds_ring_push(ring, &ring->data, message);
}

static void mark_step(struct ds_ring *ring, int64_t step) {
    spin_lock(&mark_lock);
    latest_mark.flags = DS_RECORD_MARK;
    latest_mark.offset = step;
    latest_mark.sequence++;
    atomic_store_explicit(&mark_waits, true, memory_order_release);
    spin_unlock(&mark_lock);
    flush_mark(ring, push_now);
}

/* Chunks */

/* Passes a chunk as one record, or as several that share its sequence. */
static int32_t push_records(struct ds_ring *ring, struct ds_message *message, const uint8_t *data,
                            uint64_t data_length, uint32_t last, int64_t offset) {
    uint32_t most =
        ring->max_record - (uint32_t)sizeof(struct ds_record) - message->name_length - DS_RECORD_ALIGN;
    uint64_t done = 0;
    /* Without its mark, the chunk would seem to be of the step before. */
    int unmarked = flush_mark(ring, push_record);
    if (unmarked)
        return lose(ring, cause_of(unmarked), message, data_length, last);
    /* Before the first record: once that is in the ring, the reader must learn of a cut. */
    bool reserved = data_length > most && ds_ring_reserve_abandon(ring);
    do {
        uint64_t rest = data_length - done;
        uint32_t part = rest > most ? most : (uint32_t)rest;
        message->data = data + done;
        message->data_length = part;
        message->offset = offset < 0 ? offset : offset + (int64_t)done;
        message->flags = part < rest ? DS_RECORD_MORE : last;
        int error = push_record(ring, message);
        if (error) {
            uint32_t abandon = reserved && done ? DS_RECORD_ABANDON : 0;
            if (reserved && !done)
                ds_ring_return_abandon(ring);
            return lose(ring, cause_of(error), message, rest, last | abandon);
        }
        done += part;
    } while (done < data_length);
    if (reserved)
        ds_ring_return_abandon(ring);
    return 0;
}

static int32_t accept_chunk(struct ds_ring *ring, const char *name, uint64_t name_length, const void *data,
                            uint64_t data_length, uint32_t is_last, int64_t offset, int32_t flag) {
    uint64_t sequence = atomic_fetch_add_explicit(&ring->control->callbacks, 1, memory_order_relaxed);
    uint32_t last = is_last ? DS_RECORD_LAST : 0;
    if (name_length == 0 || name_length > DS_NAME_MAX)
        return lose_unnamed(ring, DS_CAUSE_BAD_NAME, data_length);
    struct ds_message message = {
        .name = name, .name_length = (uint32_t)name_length, .sequence = sequence, .flag = flag};
    if (atomic_load_explicit(&ring->control->state, memory_order_relaxed) != DS_STATE_OPEN)
        return lose_unnamed(ring, DS_CAUSE_DISCARDED, data_length);
    if (refuse_rest(ring, &message, data_length, last))
        return REFUSED;
    if (!data && data_length)
        return lose(ring, DS_CAUSE_BAD_LENGTH, &message, data_length, last);
    if (offset < -1)
        return lose(ring, DS_CAUSE_BAD_OFFSET, &message, data_length, last);
    uint64_t start = offset < 0 ? 0 : (uint64_t)offset;
    if (data_length > active_policy.max_file_bytes || start > active_policy.max_file_bytes - data_length)
        return lose(ring, DS_CAUSE_TOO_LARGE, &message, data_length, last);
    return push_records(ring, &message, data, data_length, last, offset);
}

/* The callback */

static void leave(void) {
    atomic_fetch_sub_explicit(&inside, 1, memory_order_release);
}

/* Announces a call before it looks at the active ring, so that either this call sees
 * ds_detach, or ds_detach waits for this call. NULL: no ring is active. */
static struct ds_ring *enter(void) {
    if (ds_forked())
        return NULL;
    /* A first look, so that late calls do not delay ds_detach. */
    struct ds_ring *ring = atomic_load_explicit(&active, memory_order_relaxed);
    if (ring) {
        atomic_fetch_add_explicit(&inside, 1, memory_order_seq_cst);
        ring = atomic_load_explicit(&active, memory_order_seq_cst);
        if (!ring)
            leave();
    }
    return ring;
}

static struct ds_ring *enter_with_chunk(void) {
    struct ds_ring *ring = enter();
    if (!ring && !ds_forked())
        atomic_fetch_add_explicit(&late_calls, 1, memory_order_relaxed);
    return ring;
}

static int32_t check_and_push(struct ds_ring *ring, const acldumpChunk *chunk_untrusted, int32_t len) {
    const size_t payload = offsetof(acldumpChunk, dataBuf);
    if (!chunk_untrusted || len < 0 || (size_t)len < payload) {
        atomic_fetch_add_explicit(&ring->control->callbacks, 1, memory_order_relaxed);
        return lose_unnamed(ring, chunk_untrusted ? DS_CAUSE_BAD_LENGTH : DS_CAUSE_NULL_CHUNK, 0);
    }
    const acldumpChunk *chunk = chunk_untrusted;
    size_t name_length = strnlen(chunk->fileName, sizeof chunk->fileName);
    uint32_t data_length = chunk->bufLen;
    /* Without data, accept_chunk loses the chunk as DS_CAUSE_BAD_LENGTH. */
    const uint8_t *data = (size_t)len - payload >= data_length ? chunk->dataBuf : NULL;
    return accept_chunk(ring, chunk->fileName, name_length, data, data_length, chunk->isLastChunk,
                        chunk->offset, chunk->flag);
}

int32_t ds_on_chunk(const acldumpChunk *chunk, int32_t len) {
    struct ds_ring *ring = enter_with_chunk();
    if (!ring)
        return REFUSED;
    int32_t result = check_and_push(ring, chunk, len);
    leave();
    return result;
}

int32_t ds_push_chunk(const char *name, uint64_t name_length, const void *data, uint64_t data_length,
                      uint32_t is_last, int64_t offset, int32_t flag) {
    struct ds_ring *ring = enter_with_chunk();
    if (!ring)
        return REFUSED;
    if (name_length && name_length <= DS_NAME_MAX && memchr(name, '\0', name_length))
        name_length = 0; /* no name: a name from the runtime would end at the NUL */
    int32_t result = accept_chunk(ring, name, name_length, data, data_length, is_last, offset, flag);
    leave();
    return result;
}

int ds_mark_step(int64_t step) {
    if (step < 0 || step > DS_STEP_MAX)
        return -EINVAL;
    struct ds_ring *ring = enter();
    if (!ring)
        return -ENOTCONN;
    mark_step(ring, step);
    leave();
    return 0;
}

/* Attaching */

static int make_alive_page(void) {
    if (atomic_load(&alive))
        return 0;
    _Atomic uint8_t *page =
        mmap(NULL, ALIVE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    if (madvise((void *)page, ALIVE_PAGE, MADV_WIPEONFORK) != 0) {
        int error = -errno;
        munmap((void *)page, ALIVE_PAGE);
        return error;
    }
    atomic_store_explicit(page, 1, memory_order_relaxed);
    atomic_store_explicit(&alive, page, memory_order_release);
    return 0;
}

int ds_attach(struct ds_ring *ring, const struct ds_policy *policy) {
    int error = make_alive_page();
    if (error)
        return error;
    bool forked = ds_forked();
    if (forked) {
        /* A child that captures for itself keeps nothing from its parent. */
        atomic_store(&active, NULL);
        atomic_store(&inside, 0);
        atomic_store(&late_calls, 0);
        atomic_flag_clear(&mark_lock);
        atomic_store(atomic_load(&alive), 1);
    }
    if (atomic_load(&active))
        return -EBUSY;
    forget_refused(forked);
    atomic_store(&stalled_at, NO_POSITION);
    atomic_store(&mark_waits, false);
    active_policy = *policy;
    atomic_store_explicit(&active, ring, memory_order_seq_cst);
    return 0;
}

int ds_detach(struct ds_ring *ring, uint64_t limit_ns) {
    if (atomic_load(&active) == ring)
        atomic_store_explicit(&active, NULL, memory_order_seq_cst);
    ds_ring_set_state(ring, DS_STATE_CLOSED);
    uint64_t deadline = ds_clock_ns() + limit_ns;
    /* seq_cst, pairs with enter(): a call that saw the ring is counted here. */
    while (atomic_load_explicit(&inside, memory_order_seq_cst) > 0) {
        if (ds_clock_ns() > deadline)
            return -ETIMEDOUT;
        struct timespec pause = {.tv_nsec = 100000};
        nanosleep(&pause, NULL);
    }
    return 0;
}
