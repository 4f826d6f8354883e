/* The reader of a ring.
 *
 * The ring that this process fills is read in place. A ring that another process fills is
 * never trusted: the other process may write to all of it at any time. The reader first copies what it takes
 * to private memory and checks it there, and it steers by numbers of its own. The worst that a producer can
 * do is to lose or forge its own chunks.
 *
 * A ring in memory is mapped, and sealed so that no process can shrink it. A ring
 * in a file is read and written by system calls: if another program truncates the
 * file, a system call reads less, where a mapping would raise SIGBUS.
 *
 * Functions return 0 or a negative errno unless they say otherwise. None of
 * them calls into Python. One thread at a time. */
#pragma once

#include "dumpstream/ring.h"

struct ds_reader {
    struct ds_ring ring;    /* in a file, only the control page is mapped, for futexes */
    bool in_place;          /* this process fills the ring: chunks are not copied */
    bool resumed;           /* began with what an earlier reader left */
    bool producer_died;     /* no process writes any more */
    uint64_t finished;      /* chunks of which the last record was taken */
    uint64_t holes;         /* in the data lane, left by a producer that died */
    uint64_t hole_bytes;    /* of ring space */
    uint64_t unnamed_holes; /* the same in the note lane: losses without a name */
    uint64_t marks;         /* the sequence behind that of the latest mark */
    uint64_t step;          /* what the latest mark said, plus 1; 0: nothing */
};

/* Makes a ring for another process to fill: in sealed memory, or in a new file. */
int ds_reader_create(struct ds_reader *reader, uint64_t data_size, const char *path);

/* Continues with the ring in the file `path` where an earlier reader, which is
 * gone, stopped. -EBADMSG: the file does not hold a ring. */
int ds_reader_resume(struct ds_reader *reader, const char *path);

/* Consecutive records of a lane. */
struct ds_records {
    const struct ds_ring *ring;
    const struct ds_lane *lane;
    uint8_t *copy;       /* from malloc; NULL: they are read in the ring */
    uint64_t start, end; /* positions */
};

/* Reads the record at `*position` as ds_ring_peek does; 0 also at the end of the records. */
int ds_records_next(const struct ds_records *records, uint64_t *position, struct ds_message *message);

/* What one look at the ring found. The losses, the hole and the marks came before the chunks. */
struct ds_batch {
    struct ds_records losses; /* notes, always copied */
    uint64_t hole_bytes;      /* 0: no hole */
    struct ds_records chunks;
    uint64_t size; /* ring space of hole, marks and chunks, which ends with the chunks */
    int64_t step;  /* of all the chunks, or DS_NO_STEP */
};

/* Takes what is there: losses, and after them at most `records` chunks, until they
 * fill `bytes` of ring space. The caller frees that space later, and frees the batch
 * even after an error. -EBADMSG: there is only a damaged record.
 *
 * In place, it does not look at the chunks: the caller reads as many as it wants, up to the first
 * mark, and sets `ring.data.read` to where it has stopped. */
int ds_reader_take(struct ds_reader *reader, uint64_t records, uint64_t bytes, struct ds_batch *batch);
void ds_batch_free(struct ds_batch *batch);

/* The producer is dead: what it claimed and did not publish is a hole. Reading goes
 * on after the hole. */
void ds_reader_end(struct ds_reader *reader);

/* As ds_ring_count. The numbers come from the producer, and only `fill` is checked.
 * A callback that a dead producer did not finish counts as DS_CAUSE_UNFINISHED,
 * with the ring space that it had claimed. */
void ds_reader_count(const struct ds_reader *reader, struct ds_counters *counters);
