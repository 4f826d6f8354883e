/* The reader of a ring that another process fills.
 *
 * Nothing in such a ring is trusted, at any time: the other process may write
 * to all of it while it is read. What is taken is copied to private memory
 * first and checked there; the reader steers by numbers of its own. The worst
 * that a producer can do is to lose or forge its own chunks.
 *
 * In memory the ring is mapped, and sealed so that nobody can shrink it. In a
 * file it is read and written by system calls: a file that somebody truncates
 * gives a short read there, and would give a SIGBUS in a mapping.
 *
 * Functions return 0 or a negative errno unless they say otherwise. None of
 * them calls into Python. One thread at a time. */
#pragma once

#include "dumpstream/ring.h"

struct ds_reader {
    struct ds_ring ring; /* of a ring in a file only the control page is mapped, for futexes */
    bool in_file;
    bool resumed;           /* began with what another reader had left */
    bool producer_died;     /* nobody writes any more */
    uint64_t freed;         /* the tail, as we left it */
    uint64_t finished;      /* chunks whose last record was taken */
    uint64_t holes;         /* left behind in the data lane by a producer that died */
    uint64_t hole_bytes;    /* of ring space */
    uint64_t unnamed_holes; /* the same in the note lane: losses without a name */
};

/* Makes a ring to hand over: in sealed memory, or in a new file. */
int ds_reader_create(struct ds_reader *reader, uint64_t data_size, const char *path);

/* Goes on with the ring in the file `path`, whose reader is gone, where that one
 * stopped. -EBADMSG: the file does not hold a ring. */
int ds_reader_resume(struct ds_reader *reader, const char *path);

void ds_reader_destroy(struct ds_reader *reader);

/* Consecutive records of a lane, copied. */
struct ds_copy {
    uint8_t *bytes;       /* from malloc; NULL if there is none */
    uint64_t start, end;  /* positions */
    uint64_t size, nonce; /* of the lane */
    uint32_t known;       /* flags */
};

/* Takes the record at `*position` as ds_ring_peek does; 0 at the copy's end. */
int ds_copy_next(const struct ds_copy *copy, uint64_t *position, struct ds_view *view);

/* What one look at the ring found. */
struct ds_batch {
    struct ds_copy losses; /* notes: they happened before the chunks ... */
    uint64_t hole_bytes;   /* ... and so did this hole; 0: none */
    struct ds_copy chunks;
    uint64_t size, end; /* ring space of hole and chunks, and where it ends */
};

/* Takes what is there: losses, and behind them at most `records` chunks, until
 * they take `bytes` of ring space. Their space is still the reader's to free.
 * Free the batch in any case. -EBADMSG: there is nothing but a damaged record. */
int ds_reader_take(struct ds_reader *reader, uint64_t records, uint64_t bytes, struct ds_batch *batch);
void ds_batch_free(struct ds_batch *batch);

/* The producer is dead: what it had claimed and not published is a hole, behind
 * which reading goes on. */
void ds_reader_end(struct ds_reader *reader);

/* As the functions of the ring. Wake-ups come in whatever way the producer's
 * side has. */
void ds_reader_free(struct ds_reader *reader, uint64_t position);
bool ds_reader_arm(struct ds_reader *reader, uint64_t distance);
void ds_reader_disarm(struct ds_reader *reader);
void ds_reader_set_state(struct ds_reader *reader, enum ds_state state);

/* As ds_ring_count. The numbers are the producer's: only `fill` is checked. A
 * callback that a dead producer did not end counts as DS_CAUSE_UNFINISHED, with
 * the ring space it had claimed. */
void ds_reader_count(const struct ds_reader *reader, struct ds_counters *counters);
