#include "dumpstream/reader.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reader_memory.h"
#include "ring_layout.h"

#define SCAN_BYTES (64u << 10)

/* Access */

#define CONTROL(field) offsetof(struct ds_control, field)

static uint64_t positions_of(const struct ds_reader *reader, const struct ds_lane *lane) {
    return lane == &reader->ring.data ? CONTROL(data) : CONTROL(notes);
}

static uint64_t load_head(const struct ds_reader *reader, const struct ds_lane *lane) {
    return ds_reader_load_word(reader, positions_of(reader, lane) + offsetof(struct ds_lane_positions, head));
}

static void store_tail(struct ds_reader *reader, const struct ds_lane *lane, uint64_t position) {
    ds_reader_store_word(reader, positions_of(reader, lane) + offsetof(struct ds_lane_positions, tail),
                         position);
}

/* Adds to a word of the control page and wakes all waiters. The kernel does the
 * addition: it returns an error where a store by this process would raise SIGBUS. */
static void add_and_wake(_Atomic uint32_t *word, int delta) {
    const uint32_t operation = FUTEX_OP(FUTEX_OP_ADD, (uint32_t)delta & 0xfff, FUTEX_OP_CMP_EQ, 0);
    syscall(SYS_futex, word, FUTEX_WAKE_OP, INT_MAX, 0, word, operation);
}

static bool is_stamped(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t position) {
    uint64_t at = lane->start + position % lane->size;
    return ds_reader_load_word(reader, at) == ds_stamp(reader->ring.nonce, position);
}

/* Copies */

/* Moves `*position` past the record there and the pad before it. Reads the record in
 * the ring. Returns as ds_ring_peek. */
static int walk(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t *position) {
    const uint32_t known = ds_known_flags(&reader->ring, lane);
    for (int pads = 0; pads <= 1; pads++) {
        struct ds_record head = {0};
        struct ds_view view;
        uint64_t offset = *position % lane->size, rest = lane->size - offset;
        if (!is_stamped(reader, lane, *position))
            return 0;
        ds_reader_load(reader, lane->start + offset, &head, rest < sizeof head ? rest : sizeof head);
        int found = ds_record_read(&head, rest, known, position, &view);
        if (found)
            return found;
    }
    return -EBADMSG; /* a lap has one pad */
}

int ds_copy_next(const struct ds_copy *copy, uint64_t *position, struct ds_view *view) {
    while (*position < copy->end) {
        const struct ds_record *record = (const void *)(copy->bytes + (*position - copy->start));
        uint64_t rest = copy->size - *position % copy->size, left = copy->end - *position;
        /* The end of a copy and every length are multiples of 16: there is a stamp. */
        if (atomic_load_explicit(&record->stamp, memory_order_relaxed) != ds_stamp(copy->nonce, *position))
            return -EBADMSG;
        int found = ds_record_read(record, rest < left ? rest : left, copy->known, position, view);
        if (found)
            return found;
    }
    return 0;
}

/* Copies a part of a lane. It may continue at the beginning of the lane. */
static int copy_lane(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t start, uint64_t end,
                     struct ds_copy *copy) {
    uint64_t bytes = end - start, offset = start % lane->size, first = lane->size - offset;
    first = first < bytes ? first : bytes;
    uint8_t *to = malloc(bytes);
    if (!to)
        return -ENOMEM;
    *copy = (struct ds_copy){.bytes = to,
                             .start = start,
                             .end = end,
                             .size = lane->size,
                             .nonce = reader->ring.nonce,
                             .known = ds_known_flags(&reader->ring, lane)};
    ds_reader_load(reader, lane->start + offset, to, first);
    ds_reader_load(reader, lane->start, to + first, bytes - first);
    return 0;
}

/* Ends the copy before the first record that begins at `until` or is damaged: the
 * producer may have changed the ring after the reader checked it there. */
static void cut(struct ds_copy *copy, uint64_t until) {
    struct ds_view view;
    uint64_t end = copy->start, position = end;
    while (ds_copy_next(copy, &position, &view) == 1 && view.position < until)
        end = position;
    copy->end = end;
}

static void drop(struct ds_copy *copy) {
    free(copy->bytes);
    *copy = (struct ds_copy){0};
}

/* Copies records while they are published and within the limits. */
static int copy_records(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t records,
                        uint64_t bytes, uint64_t until, struct ds_copy *copy) {
    uint64_t start = lane->read, end = start;
    int found = 1;
    while (records-- > 0 && end < until && end - start < bytes) {
        uint64_t next = end;
        if ((found = walk(reader, lane, &next)) != 1)
            break;
        /* There can be only one lap; anything longer is forged by the producer. */
        if (next - start > lane->size)
            break;
        end = next;
    }
    if (end == start)
        return found < 0 ? found : 0;
    int error = copy_lane(reader, lane, start, end, copy);
    if (error)
        return error;
    cut(copy, UINT64_MAX);
    if (copy->end > start)
        return 0;
    drop(copy);
    return -EBADMSG;
}

/* Batches */

/* The next position with a matching stamp, or `end`. */
static uint64_t find_stamp(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t position,
                           uint64_t end) {
    uint64_t block[SCAN_BYTES / sizeof(uint64_t)];
    while (position < end) {
        uint64_t offset = position % lane->size, bytes = lane->size - offset;
        bytes = bytes < end - position ? bytes : end - position;
        bytes = bytes < sizeof block ? bytes : sizeof block;
        ds_reader_load(reader, lane->start + offset, block, bytes);
        for (uint64_t i = 0; i < bytes; i += DS_RECORD_ALIGN) {
            if (block[i / sizeof *block] == ds_stamp(reader->ring.nonce, position + i))
                return position + i;
        }
        position += bytes;
    }
    return end;
}

/* Moves past the records that a dead producer claimed and never published. Returns
 * their length. */
static uint64_t skip_hole(struct ds_reader *reader, struct ds_lane *lane) {
    uint64_t start = lane->read;
    if (!reader->producer_died || walk(reader, lane, &start) != 0)
        return 0;
    uint64_t end = find_stamp(reader, lane, start, lane->end);
    if (end <= start)
        return 0;
    lane->read = end;
    return end - start;
}

static bool is_drained(const struct ds_reader *reader) {
    return reader->producer_died && reader->ring.data.read >= reader->ring.data.end;
}

/* Takes the notes that belong before the next chunk. Sets `until` to the position up to
 * which chunks may be read before the next note. */
static int take_losses(struct ds_reader *reader, struct ds_copy *losses, uint64_t *until) {
    struct ds_lane *notes = &reader->ring.notes;
    struct ds_view note;
    reader->unnamed_holes += skip_hole(reader, notes) > 0;
    *until = UINT64_MAX;
    int error = copy_records(reader, notes, UINT64_MAX, notes->size, UINT64_MAX, losses);
    if (error || losses->end == losses->start)
        return error;
    uint64_t position = losses->start, end = position;
    while (ds_copy_next(losses, &position, &note) == 1) {
        if (!is_drained(reader) && !ds_note_is_due(&note, reader->ring.data.read, until))
            break;
        end = position;
        if (note.flags & DS_RECORD_ABANDON)
            add_and_wake(&reader->ring.control->abandons, -1);
    }
    if (end == losses->start) {
        drop(losses);
        return 0;
    }
    losses->end = notes->read = end;
    store_tail(reader, notes, end);
    return 0;
}

/* A note that came while the chunks were copied belongs between them. */
static int cut_at_note(const struct ds_reader *reader, struct ds_copy *chunks) {
    struct ds_copy notes = {0};
    struct ds_view note;
    const struct ds_lane *lane = &reader->ring.notes;
    uint64_t position = lane->read;
    int error = copy_records(reader, lane, 1, lane->size, UINT64_MAX, &notes);
    if (!error && ds_copy_next(&notes, &position, &note) == 1 && ds_note_cuts(&note, chunks->end))
        cut(chunks, note.sequence);
    free(notes.bytes);
    return error;
}

static void count_finished(struct ds_reader *reader, const struct ds_copy *chunks) {
    struct ds_view view;
    uint64_t position = chunks->start;
    while (ds_copy_next(chunks, &position, &view) == 1)
        reader->finished += !(view.flags & DS_RECORD_MORE);
}

int ds_reader_take(struct ds_reader *reader, uint64_t records, uint64_t bytes, struct ds_batch *batch) {
    struct ds_lane *data = &reader->ring.data;
    uint64_t start = data->read, until;
    memset(batch, 0, sizeof *batch);
    int error = take_losses(reader, &batch->losses, &until);
    if (error)
        return error;
    batch->hole_bytes = skip_hole(reader, data);
    reader->holes += batch->hole_bytes > 0;
    reader->hole_bytes += batch->hole_bytes;
    error = copy_records(reader, data, records, bytes, until, &batch->chunks);
    if (!error && batch->chunks.bytes)
        error = cut_at_note(reader, &batch->chunks);
    if (error)
        drop(&batch->chunks);
    if (batch->chunks.bytes) {
        count_finished(reader, &batch->chunks);
        data->read = batch->chunks.end;
    }
    batch->end = data->read;
    batch->size = data->read - start;
    /* What was found before the damage is still delivered. */
    return batch->size || batch->losses.bytes ? 0 : error;
}

void ds_batch_free(struct ds_batch *batch) {
    free(batch->losses.bytes);
    free(batch->chunks.bytes);
}

/* Control */

/* Sets where a lane ends when its producer is dead: at most one lap after what the
 * reader had freed, whatever the producer says. */
static void end_lane(const struct ds_reader *reader, struct ds_lane *lane, uint64_t freed) {
    uint64_t claimed = load_head(reader, lane) - freed;
    lane->end = freed + (claimed < lane->size ? claimed / DS_RECORD_ALIGN * DS_RECORD_ALIGN : lane->size);
}

void ds_reader_end(struct ds_reader *reader) {
    end_lane(reader, &reader->ring.data, reader->freed);
    end_lane(reader, &reader->ring.notes, reader->ring.notes.read);
    reader->producer_died = true;
}

void ds_reader_free(struct ds_reader *reader, uint64_t position) {
    reader->freed = position;
    /* seq_cst, and before the load of waiters, so that the reader sees a producer that
     * found no space and waits. */
    store_tail(reader, &reader->ring.data, position);
    if (ds_reader_load_waiters(reader))
        add_and_wake(&reader->ring.control->freed, 1);
}

bool ds_reader_arm(struct ds_reader *reader, uint64_t distance) {
    uint64_t position = reader->ring.data.read;
    /* seq_cst, pairs with the load in a producer's wake_reader. */
    ds_reader_store_word(reader, CONTROL(wake_at), position + distance);
    if (walk(reader, &reader->ring.data, &position) == 0)
        return false;
    ds_reader_disarm(reader);
    return true;
}

void ds_reader_disarm(struct ds_reader *reader) {
    ds_reader_store_word(reader, CONTROL(wake_at), DS_NEVER);
}

void ds_reader_set_state(struct ds_reader *reader, enum ds_state state) {
    ds_reader_store_state(reader, state);
    add_and_wake(&reader->ring.control->freed, 1);
}

/* Callbacks that the producer began and did not finish before it died. */
static uint64_t unfinished(const struct ds_reader *reader, const struct ds_counters *counters) {
    uint64_t ended = reader->finished;
    if (reader->resumed || !is_drained(reader))
        return reader->holes;
    for (unsigned cause = 0; cause < DS_CAUSE_UNFINISHED; cause++)
        ended += counters->lost_chunks[cause];
    uint64_t begun = counters->callbacks > ended ? counters->callbacks - ended : 0;
    return begun > reader->holes ? begun : reader->holes;
}

void ds_reader_count(const struct ds_reader *reader, struct ds_counters *counters) {
    const struct ds_lane *data = &reader->ring.data;
    uint64_t fill = load_head(reader, data) - reader->freed;
    counters->fill = fill < data->size ? fill : data->size;
    counters->callbacks = ds_reader_load_word(reader, CONTROL(callbacks));
    counters->wakeups = ds_reader_load_word(reader, CONTROL(wakeups));
    counters->unnamed = ds_reader_load_word(reader, CONTROL(unnamed_chunks)) + reader->unnamed_holes;
    for (unsigned cause = 0; cause < DS_CAUSE_COUNT; cause++) {
        counters->lost_chunks[cause] =
            ds_reader_load_word(reader, CONTROL(lost_chunks) + cause * sizeof(uint64_t));
        counters->lost_bytes[cause] =
            ds_reader_load_word(reader, CONTROL(lost_bytes) + cause * sizeof(uint64_t));
    }
    counters->lost_chunks[DS_CAUSE_UNFINISHED] = unfinished(reader, counters);
    counters->lost_bytes[DS_CAUSE_UNFINISHED] = reader->hole_bytes;
}
