/* Writes chunks to the files that they name, as CANN does without a callback. */
#pragma once

#include <sys/types.h>

#include <dumpstream/acl_abi.h>

/* The length of the "a.b.c.d:" before a path on another host; 0 for a local path. */
size_t remote_prefix(const char *path);

/* Returns 0 if it is a directory that can be read and written, or -errno. */
int disk_check_directory(const char *path);

/* Makes the directory and those above it, then checks it in the same way. */
int disk_make_directory(const char *path, mode_t mode);

/* Creates a file that only its owner may read, and missing directories. Replaces a file of
 * the same name. Returns the descriptor or -errno. */
int disk_create(const char *path);

/* An offset below 0 appends. Returns 0 or -errno. */
int disk_write_at(int descriptor, const uint8_t *bytes, size_t length, int64_t offset);

/* Also creates missing directories. A path on another host is used as a local one. Returns 0
 * or -errno. */
int disk_write(const acldumpChunk *chunk);
