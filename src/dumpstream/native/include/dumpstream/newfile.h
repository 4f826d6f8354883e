/* Files that appear whole under their names. */
#pragma once

#include <stddef.h>
#include <sys/uio.h>

/* Makes the file `name`, of mode 0600, in a directory. It appears whole or not at all, and never in
 * the place of another. Before it has its name it has none, so no kill leaves anything behind.
 * Returns 0 or a negative errno: -EEXIST if there is something of that name, -EOPNOTSUPP if the
 * system or the file system cannot do it. */
int ds_new_file(int dir_fd, const char *name, const void *data, size_t size);

/* Does the same with a file of `count` pieces, one after the other; changes `pieces`. */
int ds_new_file_of(int dir_fd, const char *name, struct iovec *pieces, int count);
