#include "dumpstream/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring_layout.h"

#define SCAN_BYTES (64u << 10)

/* Copies */

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
    ds_ring_load(&reader->ring, lane->start + offset, to, first);
    ds_ring_load(&reader->ring, lane->start, to + first, bytes - first);
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
    struct ds_view view;
    int found = 1;
    while (records-- > 0 && end < until && end - start < bytes) {
        uint64_t next = end;
        if ((found = ds_ring_peek(&reader->ring, lane, &next, &view)) != 1)
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
    struct ds_view view;
    uint64_t start = lane->read;
    if (!reader->producer_died || ds_ring_peek(&reader->ring, lane, &start, &view) != 0)
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
    unsigned abandons = 0;
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
        abandons += (note.flags & DS_RECORD_ABANDON) != 0;
    }
    if (end == losses->start) {
        drop(losses);
        return 0;
    }
    losses->end = notes->read = end;
    ds_ring_free(&reader->ring, notes, end);
    while (abandons-- > 0)
        ds_ring_return_abandon(&reader->ring);
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
static void end_lane(const struct ds_ring *ring, struct ds_lane *lane) {
    uint64_t claimed = ds_word_load(ring, &lane->positions->head) - lane->freed;
    lane->end =
        lane->freed + (claimed < lane->size ? claimed / DS_RECORD_ALIGN * DS_RECORD_ALIGN : lane->size);
}

void ds_reader_end(struct ds_reader *reader) {
    end_lane(&reader->ring, &reader->ring.data);
    end_lane(&reader->ring, &reader->ring.notes);
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
    uint64_t fill = ds_word_load(&reader->ring, &data->positions->head) - data->freed;
    counters->fill = fill < data->size ? fill : data->size;
    counters->unnamed += reader->unnamed_holes;
    counters->lost_chunks[DS_CAUSE_UNFINISHED] = unfinished(reader, counters);
    counters->lost_bytes[DS_CAUSE_UNFINISHED] = reader->hole_bytes;
}
