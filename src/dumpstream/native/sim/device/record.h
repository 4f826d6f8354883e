/* The host side of a dump: a queue of chunks, and one thread that passes them to the callback,
 * or writes them to disk if no callback is registered.
 *
 * The maker of a message owns it until record_push takes it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "workload/workload.h"

/* CANN's transport also has 24 bytes before the chunk. Payloads therefore have an address of
 * 12 mod 16, as in CANN. */
struct message {
    struct message *next;
    uint64_t bytes;
    uint64_t statistics; /* bits of stats.h: rows of text, which may need a header */
    acldumpChunk chunk;
};

_Static_assert(offsetof(struct message, chunk) == 24, "chunk");

/* As sim.h explains them. */
struct counters {
    _Atomic uint64_t files, delivered, refused, disk, lost, ignored, exceptions;
};

extern struct counters counters;

/* Makes a chunk without an offset and without marks, with space for `bytes` of payload.
 * Without memory it returns NULL and counts a lost chunk. `name` is shorter than 4096. */
struct message *message_new(const char *name, uint32_t bytes);

struct record;

/* Starts the record thread, which must not run. Returns 0 or -errno. Starting and stopping must not
 * overlap. */
int record_start(void);

/* Delivers what is queued and stops the record thread, which must run. As CANN does from 9.1 on, or
 * always if asked to, it returns after the last callback, otherwise possibly during it. */
void record_stop(bool always_join);

/* Returns the running record thread for record_push, or NULL. The caller must release it with
 * record_release. */
struct record *record_acquire(void);
void record_release(struct record *record);

/* Takes the message, and waits while the queue is at its limit. If the thread is being
 * stopped, returns false and counts the message as lost. */
bool record_push(struct record *record, struct message *message);

/* Refuses further messages and ends every wait in record_push. */
void record_refuse(void);

/* Takes the limit of the queue and the behaviour from the workload that runs from now on. */
void record_load(const struct dssim_workload *workload);
