#include "device/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t remote_prefix(const char *path) {
    const char *at = path;
    for (int part = 0; part < 4; part++) {
        unsigned value = 0;
        int digits = 0;
        for (; *at >= '0' && *at <= '9' && digits < 3; digits++)
            value = value * 10 + (unsigned)(*at++ - '0');
        if (digits == 0 || value > 255 || *at++ != (part < 3 ? '.' : ':'))
            return 0;
    }
    return *at ? (size_t)(at - path) : 0;
}

static int make_parents(const char *name, mode_t mode) {
    char path[ACL_DUMP_MAX_FILE_PATH_LENGTH];
    if (strlen(name) >= sizeof path)
        return -ENAMETOOLONG;
    strcpy(path, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, mode) != 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    return 0;
}

int disk_check_directory(const char *path) {
    struct stat about;
    if (stat(path, &about) != 0)
        return -errno;
    if (!S_ISDIR(about.st_mode))
        return -ENOTDIR;
    return access(path, R_OK | W_OK) == 0 ? 0 : -errno;
}

int disk_make_directory(const char *path, mode_t mode) {
    int result = make_parents(path, mode);
    if (result == 0 && mkdir(path, mode) != 0 && errno != EEXIST)
        result = -errno;
    return result != 0 ? result : disk_check_directory(path);
}

int disk_create(const char *path) {
    int result = make_parents(path, 0700);
    if (result != 0)
        return result;
    unlink(path);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    return descriptor >= 0 ? descriptor : -errno;
}

int disk_write_at(int descriptor, const uint8_t *bytes, size_t length, int64_t offset) {
    size_t done = 0;
    while (done < length) {
        size_t left = length - done;
        ssize_t written = offset < 0 ? write(descriptor, bytes + done, left)
                                     : pwrite(descriptor, bytes + done, left, offset + (int64_t)done);
        if (written < 0 && errno != EINTR)
            return -errno;
        done += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

int disk_write(const acldumpChunk *chunk) {
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (chunk->offset < 0 ? O_APPEND : 0);
    const char *path = chunk->fileName + remote_prefix(chunk->fileName);
    int result = make_parents(path, 0700);
    if (result != 0)
        return result;
    int descriptor = open(path, flags, 0600);
    if (descriptor < 0)
        return -errno;
    result = disk_write_at(descriptor, chunk->dataBuf, chunk->bufLen, chunk->offset);
    if (close(descriptor) != 0 && result == 0)
        result = -errno;
    return result;
}
