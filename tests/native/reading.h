/* The reader's side of a ring, for tests. */
#pragma once

#include <string.h>

#include "check.h"
#include "dumpstream/ring.h"

/* Takes the next record of a lane, which must be there. The next call of free_read frees it. */
static inline struct ds_message take(struct ds_ring *ring, struct ds_lane *lane) {
    struct ds_message view;
    CHECK_EQUAL(ds_ring_peek(ring, lane, &lane->read, &view), 1);
    return view;
}

static inline void free_read(struct ds_ring *ring, struct ds_lane *lane) {
    ds_ring_free(ring, lane, lane->read);
}

static inline bool is_empty(const struct ds_ring *ring, const struct ds_lane *lane) {
    struct ds_message view;
    uint64_t position = lane->read;
    int found = ds_ring_peek(ring, lane, &position, &view);
    CHECK(found == 0 || found == 1);
    return found == 0;
}

/* Reads and frees everything; returns how many records there were. */
static inline unsigned drain(struct ds_ring *ring, struct ds_lane *lane) {
    unsigned count = 0;
    for (; !is_empty(ring, lane); count++)
        take(ring, lane);
    free_read(ring, lane);
    return count;
}

static inline bool is_named(const struct ds_message *view, const char *name) {
    return view->name_length == strlen(name) && memcmp(view->name, name, view->name_length) == 0;
}
