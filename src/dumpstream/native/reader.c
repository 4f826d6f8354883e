#include "dumpstream/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring_layout.h"

#define SCAN_BYTES (64u << 10)

/* Records */

int ds_records_next(const struct ds_records *records, uint64_t *position, struct ds_message *message) {
    const struct ds_ring *ring = records->ring;
    const struct ds_lane *lane = records->lane;
    if (!records->copy)
        return *position < records->end ? ds_ring_peek(ring, lane, position, message) : 0;
    while (*position < records->end) {
        const struct ds_record *record = (const void *)(records->copy + (*position - records->start));
        uint64_t rest = lane->size - *position % lane->size, left = records->end - *position;
        /* The end of a copy and every length are multiples of 16: there is a stamp. */
        if (atomic_load_explicit(&record->stamp, memory_order_relaxed) != ds_stamp(ring->nonce, *position))
            return -EBADMSG;
        int found = ds_record_read(ring, lane, record, rest < left ? rest : left, position, message);
        if (found)
            return found;
    }
    return 0;
}

/* Copies the records, which may continue at the beginning of the lane. Ends the copy before
 * the first record that is damaged: the producer may have changed the ring after the reader
 * looked at it. */
static int copy(const struct ds_ring *ring, struct ds_records *records) {
    const struct ds_lane *lane = records->lane;
    uint64_t bytes = records->end - records->start, offset = records->start % lane->size;
    uint64_t first = lane->size - offset < bytes ? lane->size - offset : bytes;
    struct ds_message message;
    records->copy = malloc(bytes);
    if (!records->copy) {
        records->end = records->start;
        return -ENOMEM;
    }
    ds_ring_load(ring, lane->start + offset, records->copy, first);
    ds_ring_load(ring, lane->start, records->copy + first, bytes - first);
    uint64_t end = records->start, position = end;
    while (ds_records_next(records, &position, &message) == 1 && !(message.flags & DS_RECORD_MARK))
        end = position;
    records->end = end;
    return end > records->start ? 0 : -EBADMSG;
}

/* Copies records while they are published and within the limits, up to the first mark; none
 * after an error. */
static int copy_records(const struct ds_ring *ring, const struct ds_lane *lane, uint64_t most, uint64_t bytes,
                        uint64_t until, struct ds_records *records) {
    uint64_t start = lane->read, end = start;
    struct ds_message message;
    int found = 1;
    while (most-- > 0 && end < until && end - start < bytes) {
        uint64_t next = end;
        found = ds_ring_peek(ring, lane, &next, &message);
        /* There can be only one lap; anything longer is forged by the producer. */
        if (found != 1 || next - start > lane->size || message.flags & DS_RECORD_MARK)
            break;
        end = next;
    }
    if (end == start)
        return found < 0 ? found : 0;
    *records = (struct ds_records){.ring = ring, .lane = lane, .start = start, .end = end};
    return copy(ring, records);
}

/* Batches */

/* How much producers have claimed from `position` on: at most a lap, whatever they say. */
static uint64_t claimed_from(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t position) {
    uint64_t claimed = ds_word_load(&reader->ring, &lane->positions->head) - position;
    return claimed < lane->size ? claimed : lane->size;
}

/* The next position with a matching stamp, or `end`. */
static uint64_t find_stamp(const struct ds_reader *reader, const struct ds_lane *lane, uint64_t position,
                           uint64_t end) {
    uint64_t block[SCAN_BYTES / sizeof(uint64_t)];
    while (position < end) {
        uint64_t offset = position % lane->size, bytes = lane->size - offset;
        bytes = bytes < end - position ? bytes : end - position;
        bytes = bytes < sizeof block ? bytes : sizeof block;
        ds_ring_load(&reader->ring, lane->start + offset, block, bytes);
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
    struct ds_message message;
    uint64_t start = lane->read;
    if (!reader->producer_died || ds_ring_peek(&reader->ring, lane, &start, &message) != 0)
        return 0;
    uint64_t end = find_stamp(reader, lane, start, lane->end);
    if (end <= start)
        return 0;
    lane->read = end;
    return end - start;
}

/* Moves past the marks that are next and before `until`. Returns their length. */
static uint64_t take_marks(struct ds_reader *reader, uint64_t until) {
    struct ds_lane *data = &reader->ring.data;
    struct ds_message mark;
    uint64_t start = data->read, next = start;
    while (next < until && next - start < data->size &&
           ds_ring_peek(&reader->ring, data, &next, &mark) == 1 && mark.flags & DS_RECORD_MARK) {
        data->read = next;
        /* Two threads may pass on the same mark, one of them late: see flush_mark. */
        if (mark.sequence < reader->marks)
            continue;
        reader->marks = mark.sequence + 1;
        reader->step = (uint64_t)mark.offset + 1;
    }
    return data->read - start;
}

static bool is_drained(const struct ds_reader *reader) {
    return reader->producer_died && reader->ring.data.read >= reader->ring.data.end;
}

/* Takes the notes that belong before the next chunk: a note carries, as its sequence, where
 * the data lane stood when the loss happened. Sets `until` to the position up to which chunks
 * may be read before the next note. */
static int take_losses(struct ds_reader *reader, struct ds_records *losses, uint64_t *until) {
    struct ds_lane *notes = &reader->ring.notes;
    struct ds_message note;
    unsigned abandons = 0;
    reader->unnamed_holes += skip_hole(reader, notes) > 0;
    *until = UINT64_MAX;
    int error = copy_records(&reader->ring, notes, UINT64_MAX, notes->size, UINT64_MAX, losses);
    if (error || losses->end == losses->start)
        return error;
    uint64_t position = losses->start, end = position;
    while (ds_records_next(losses, &position, &note) == 1) {
        if (!is_drained(reader) && note.sequence > reader->ring.data.read) {
            *until = note.sequence;
            break;
        }
        end = position;
        abandons += (note.flags & DS_RECORD_ABANDON) != 0;
    }
    if (end > losses->start)
        ds_ring_free(&reader->ring, notes, end);
    losses->end = notes->read = end;
    while (abandons-- > 0)
        ds_ring_return_abandon(&reader->ring);
    return 0;
}

static void count_finished(struct ds_reader *reader, const struct ds_records *chunks) {
    struct ds_message message;
    uint64_t position = chunks->start;
    while (ds_records_next(chunks, &position, &message) == 1)
        reader->finished += !(message.flags & DS_RECORD_MORE);
}

int ds_reader_take(struct ds_reader *reader, uint64_t records, uint64_t bytes, struct ds_batch *batch) {
    struct ds_ring *ring = &reader->ring;
    struct ds_lane *data = &ring->data;
    uint64_t until;
    memset(batch, 0, sizeof *batch);
    /* Before the notes: a thread that notes a loss and then claims space for a chunk of the same
     * file does so in this order, see claim(). Chunks after this position may have notes that
     * were not there yet. */
    uint64_t head = data->read + claimed_from(reader, data, data->read);
    int error = take_losses(reader, &batch->losses, &until);
    if (error)
        return error;
    until = head < until ? head : until;
    batch->size = batch->hole_bytes = skip_hole(reader, data);
    reader->holes += batch->hole_bytes > 0;
    reader->hole_bytes += batch->hole_bytes;
    if (batch->hole_bytes)
        reader->step = 0; /* there may have been a mark in it */
    batch->size += take_marks(reader, until);
    batch->step = (int64_t)reader->step - 1;
    batch->chunks = (struct ds_records){.ring = ring, .lane = data, .start = data->read, .end = data->read};
    if (reader->in_place) {
        batch->chunks.end += bytes < until - data->read ? bytes : until - data->read;
        return 0;
    }
    error = copy_records(ring, data, records, bytes, until, &batch->chunks);
    count_finished(reader, &batch->chunks);
    batch->size += batch->chunks.end - data->read;
    data->read = batch->chunks.end;
    /* What was found before the damage is still delivered. */
    return batch->size || batch->losses.end > batch->losses.start ? 0 : error;
}

void ds_batch_free(struct ds_batch *batch) {
    free(batch->losses.copy);
    free(batch->chunks.copy);
}

/* Control */

/* Sets where a lane ends when its producer is dead. */
static void end_lane(const struct ds_reader *reader, struct ds_lane *lane) {
    lane->end = lane->freed + claimed_from(reader, lane, lane->freed) / DS_RECORD_ALIGN * DS_RECORD_ALIGN;
}

void ds_reader_end(struct ds_reader *reader) {
    end_lane(reader, &reader->ring.data);
    end_lane(reader, &reader->ring.notes);
    reader->producer_died = true;
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
    ds_ring_count(&reader->ring, counters);
    counters->fill = claimed_from(reader, data, data->freed);
    counters->unnamed += reader->unnamed_holes;
    counters->lost_chunks[DS_CAUSE_UNFINISHED] = unfinished(reader, counters);
    counters->lost_bytes[DS_CAUSE_UNFINISHED] = reader->hole_bytes;
}
