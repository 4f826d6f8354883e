/* The function that CANN calls, and the one ring of this process that it
 * fills.
 *
 * The callback has no user data, so there is at most one active ring. Calls may
 * come from any thread, before a ring is active, after it was stopped, and
 * while the process exits; they are then refused at once. */
#pragma once

#include "dumpstream/acl_abi.h"
#include "dumpstream/ring.h"

/* What the callback does with a full ring, and what it accepts. */
struct ds_policy {
    bool block;              /* wait for space; otherwise drop */
    uint64_t block_limit_ns; /* how long a record may wait at most */
    uint64_t max_file_bytes; /* no chunk may end beyond this */
};

/* Given to acldumpRegCallback. Copies the chunk into the active ring; returns 0
 * or a nonzero number, which CANN logs. Never allocates, logs, takes the GIL,
 * or holds a lock across a copy. */
int32_t ds_on_chunk(const acldumpChunk *chunk, int32_t len);

/* The same for a chunk whose parts lie apart. `name` need not be trusted. */
int32_t ds_push_chunk(const char *name, uint64_t name_length, const void *data, uint64_t data_length,
                      uint32_t is_last, int64_t offset, int32_t flag);

/* Makes `ring` the active one. -EBUSY: another is. The ring and the policy must
 * stay where they are until ds_detach. */
int ds_attach(struct ds_ring *ring, const struct ds_policy *policy);

/* Refuses all further calls and waits until no call is inside the ring, for at
 * most `limit_ns`. -ETIMEDOUT: one still is; then the ring must stay mapped. */
int ds_detach(struct ds_ring *ring, uint64_t limit_ns);

/* Whether this process is a forked child of the one that attached. Its rings
 * are not mapped here. */
bool ds_forked(void);

#define DS_REFUSED_MAX 256u

/* A file that is refused since it lost a chunk, and whose last chunk has not
 * come. For reading after ds_detach: returns whether slot `index` holds one. */
bool ds_refused_file(uint32_t index, const char **name, uint32_t *name_length, uint64_t *bytes);

/* Calls refused because no ring was active, since the process started. */
uint64_t ds_late_calls(void);
