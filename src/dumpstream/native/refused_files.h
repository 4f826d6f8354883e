/* The files that have lost a chunk in this process: the rest of each is refused, so that no file has a hole
 * that its reader does not know of. A file stands here until its last chunk has come. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Remembers a file. Returns whether it was remembered: there are DS_REFUSED_MAX slots. */
bool remember_refused(const char *name, uint32_t length);

/* Whether the file is refused. If it is, counts the bytes of a chunk, sets `total` to those of all its chunks
 * that were refused, and forgets it with its last chunk. */
bool count_refused(const char *name, uint32_t length, uint64_t bytes, bool last, uint64_t *total);

/* Forgets all files; in a forked child, also the lock that a thread of its parent may have held. */
void forget_refused(bool forked);
