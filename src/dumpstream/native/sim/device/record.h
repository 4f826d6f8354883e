/* The host side of a dump: a queue of chunks and the one thread that hands
 * them to the callback, or to the disk while none is registered.
 *
 * A message belongs to whoever made it until record_push takes it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <dumpstream/acl_abi.h>

/* The 24 bytes before the chunk are as many as CANN's transport has there,
 * so that payloads lie at 12 mod 16, as CANN's do. */
struct message {
    struct message *next;
    uint64_t bytes;
    uint64_t statistics; /* bits of stats.h: rows of text, to which the header may have to be added */
    acldumpChunk chunk;
};

_Static_assert(offsetof(struct message, chunk) == 24, "chunk");

/* As sim.h explains them. */
struct counters {
    _Atomic uint64_t files, delivered, refused, disk, lost, ignored, exceptions;
};

extern struct counters counters;

/* An appended chunk with no marks and room for `bytes` of payload; NULL, with
 * one chunk counted as lost, without memory. `name` is shorter than 4096. */
struct message *message_new(const char *name, uint32_t bytes);

struct record;

/* Starts the record thread, or counts one more user of it. Returns 0 or -errno.
 * Starting and stopping must not overlap. */
int record_start(void);

/* The last user's stop delivers what is queued. With `join` it returns after
 * the last callback, otherwise possibly during it. */
void record_stop(bool join);

/* Returns the running record thread for record_push, or NULL. To be given
 * back with record_release. */
struct record *record_acquire(void);
void record_release(struct record *record);

/* Takes the message; waits while the queue is at its limit. Returns false,
 * with the message counted as lost, if the thread is being stopped. */
bool record_push(struct record *record, struct message *message);

/* Refuses further messages and ends every wait in record_push. */
void record_refuse(void);

/* 0 is no limit. */
void record_set_limit(uint64_t bytes);
