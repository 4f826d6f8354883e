#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
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

static int make_parents(const char *name) {
    char path[ACL_DUMP_MAX_FILE_PATH_LENGTH];
    strcpy(path, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    return 0;
}

static int write_all(int descriptor, const acldumpChunk *chunk) {
    uint32_t done = 0;
    while (done < chunk->bufLen) {
        const void *from = chunk->dataBuf + done;
        size_t left = chunk->bufLen - done;
        ssize_t written = chunk->offset < 0 ? write(descriptor, from, left)
                                            : pwrite(descriptor, from, left, chunk->offset + done);
        if (written < 0 && errno != EINTR)
            return -errno;
        done += written > 0 ? (uint32_t)written : 0;
    }
    return 0;
}

int disk_write(const acldumpChunk *chunk) {
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (chunk->offset < 0 ? O_APPEND : 0);
    const char *path = chunk->fileName + remote_prefix(chunk->fileName);
    int result = make_parents(path);
    int descriptor;
    if (result != 0)
        return result;
    descriptor = open(path, flags, 0600);
    if (descriptor < 0)
        return -errno;
    result = write_all(descriptor, chunk);
    if (close(descriptor) != 0 && result == 0)
        result = -errno;
    return result;
}
