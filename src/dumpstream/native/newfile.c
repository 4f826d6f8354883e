/* A file is made without a name, written, and then linked to its name. */
#include "dumpstream/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Moves `pieces` past what was written of them. */
static void advance(struct iovec *pieces, int count, size_t written) {
    for (int i = 0; i < count; i++) {
        size_t part = written < pieces[i].iov_len ? written : pieces[i].iov_len;
        pieces[i].iov_base = (char *)pieces[i].iov_base + part;
        pieces[i].iov_len -= part;
        written -= part;
    }
}

static int write_all(int fd, struct iovec *pieces, int count) {
    size_t left = 0;
    for (int i = 0; i < count; i++)
        left += pieces[i].iov_len;
    while (left) {
        ssize_t written = writev(fd, pieces, count);
        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0) {
            advance(pieces, count, (size_t)written);
            left -= (size_t)written;
        }
    }
    return 0;
}

static int give_name(int fd, int dir_fd, const char *name) {
    if (linkat(fd, "", dir_fd, name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    /* Older systems let only privileged processes do that. */
    char path[sizeof "/proc/self/fd/" + 3 * sizeof fd];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, dir_fd, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

int ds_new_file(int dir_fd, const char *name, const void *data, size_t size) {
    struct iovec piece = {(void *)data, size};
    return ds_new_file_of(dir_fd, name, &piece, 1);
}

int ds_new_file_of(int dir_fd, const char *name, struct iovec *pieces, int count) {
    int fd = openat(dir_fd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EISDIR || errno == EINVAL || errno == ENOENT ? -EOPNOTSUPP : -errno;
    int error = write_all(fd, pieces, count);
    if (!error) {
        error = give_name(fd, dir_fd, name);
        /* No /proc, or a directory that is gone; no links on this file system. */
        if (error == -ENOENT || error == -EPERM || error == -EXDEV)
            error = -EOPNOTSUPP;
    }
    /* Some file systems report only now that the disk is full. */
    if (close(fd) != 0 && !error) {
        error = -errno;
        unlinkat(dir_fd, name, 0);
    }
    return error;
}
