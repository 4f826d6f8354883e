/* The function that CANN calls, and the one ring of this process that it
 * fills.
 *
 * CANN passes the callback no user data, so a process has at most one active ring.
 * Calls may come from any thread. A call that comes while no ring is active, for
 * example while the process exits, is refused at once. */
#pragma once

#include "dumpstream/acl_abi.h"
#include "dumpstream/ring.h"

/* What the callback does with a full ring, and what it accepts. */
struct ds_policy {
    bool block;              /* wait for space; otherwise drop the chunk */
    uint64_t block_limit_ns; /* the longest that a record may wait */
    uint64_t max_file_bytes; /* no chunk may end after this byte of its file */
};

/* The function to register with acldumpRegCallback. Copies the chunk into the active
 * ring. Returns 0, or another number, which CANN logs. Never allocates, logs, takes
 * the GIL, or holds a lock while it copies. */
int32_t ds_on_chunk(const acldumpChunk *chunk, int32_t len);

/* The same for a chunk in several places of memory. `name` need not be trusted. */
int32_t ds_push_chunk(const char *name, uint64_t name_length, const void *data, uint64_t data_length,
                      uint32_t is_last, int64_t offset, int32_t flag);

/* Marks the beginning of `step`: chunks that come from now on belong to it. Never waits: if the
 * ring is full, the mark goes into it before the next chunk. -EINVAL: the step is negative or
 * above DS_STEP_MAX; -ENOTCONN: no ring is active. */
int ds_mark_step(int64_t step);

/* Makes `ring` the active one. -EBUSY: another ring is active. The ring must stay
 * where it is until ds_detach. */
int ds_attach(struct ds_ring *ring, const struct ds_policy *policy);

/* Refuses all further calls and waits for at most `limit_ns` until no call is inside
 * the ring. -ETIMEDOUT: one still is, and the ring must stay mapped. */
int ds_detach(struct ds_ring *ring, uint64_t limit_ns);

/* Whether this process is a forked child of the one that attached. The parent's
 * rings are not mapped here. */
bool ds_forked(void);

#define DS_REFUSED_MAX 256u

/* Reads slot `index` of the files that are refused because they lost a chunk and of
 * which the last chunk has not come. Returns whether the slot holds such a file. To
 * be called after ds_detach. */
bool ds_refused_file(uint32_t index, const char **name, uint32_t *name_length, uint64_t *bytes);

/* Tells a reader in another process about the files that are still refused: only this
 * process knows their names. To be called after ds_detach. */
void ds_note_refused(struct ds_ring *ring);

/* Calls refused because no ring was active, since the process started. */
uint64_t ds_late_calls(void);
