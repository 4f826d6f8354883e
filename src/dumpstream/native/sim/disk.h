/* Writes chunks to the files they name, as CANN does without a callback. */
#ifndef DSSIM_DISK_H
#define DSSIM_DISK_H

#include <stddef.h>

#include <dumpstream/acl_abi.h>

/* Length of the a.b.c.d: before a path on another host; 0 for a local path. */
size_t remote_prefix(const char *path);

/* Creates missing directories; a path on another host is taken as local.
 * Returns 0 or -errno. */
int disk_write(const acldumpChunk *chunk);

#endif
