/* The layout of a ring in memory or in a file: the control block, the note lane and
 * the data lane, each on pages of its own. */
#pragma once

#include "dumpstream/ring.h"

#define DS_RING_MAGIC 0x676e697273706d64u /* "dmpsring" */
/* An agent that maps another version must be refused before: PROTOCOL_VERSION changes with it. */
#define DS_RING_VERSION 4u
/* The oldest version that can still be read: it has no marks, but the same layout. */
#define DS_RING_WITHOUT_MARKS 2u
/* The latest version in which records were as short as their content. */
#define DS_RING_WITHOUT_LEAST 3u
#define DS_PAGE 4096u
#define DS_ABANDON_BYTES (48u << 10)
#define DS_NOTE_LANE_BYTES ((64u << 10) + DS_ABANDON_BYTES)
#define DS_CONTROL_BYTES ((sizeof(struct ds_control) + DS_PAGE - 1) / DS_PAGE * DS_PAGE)
#define DS_RING_MAX_BYTES ((uint64_t)1 << 46)
#define DS_NEVER UINT64_MAX

static inline uint64_t ds_align_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The length of a whole ring. */
static inline uint64_t ds_ring_bytes(uint64_t data_size) {
    return DS_CONTROL_BYTES + DS_NOTE_LANE_BYTES + data_size;
}

static inline uint64_t ds_stamp(uint64_t nonce, uint64_t position) {
    return (position ^ nonce) | 1u;
}

static inline struct ds_record *ds_record_at(const struct ds_lane *lane, uint64_t position) {
    return (struct ds_record *)(void *)(lane->base + position % lane->size);
}

/* Access to a ring that is mapped, or only in its file. `at` counts from the beginning of
 * the ring. Bytes that are no longer in the file read as zeros, which are not a record. */
void ds_ring_load(const struct ds_ring *ring, uint64_t at, void *to, size_t bytes);

/* Words of the control block: their loads and stores are seq_cst, in a file as well. */
uint64_t ds_word_load(const struct ds_ring *ring, const _Atomic uint64_t *word);
void ds_word_store(struct ds_ring *ring, _Atomic uint64_t *word, uint64_t value);

/* Reads the head of the record at `*position` of the lane, checks it, and moves `*position`
 * past the record. Reads each number once. The lane has `rest` bytes from that position on.
 * Returns 1 and fills `message`, 0 for a pad, which must fill the rest, or -EBADMSG. */
int ds_record_read(const struct ds_ring *ring, const struct ds_lane *lane, const struct ds_record *record,
                   uint64_t rest, uint64_t *position, struct ds_message *message);
