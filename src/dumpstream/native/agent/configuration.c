#include "configuration.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* CANN refuses larger files. */
#define MAX_FILE_BYTES (10u << 20)
/* Of a longer file the collector only learns the path. */
#define MAX_TOLD_BYTES (1u << 20)

/* Returns the problem with the file, or NULL. */
static const char *read_text(int fd, char *text, size_t *length) {
    ssize_t got;
    while (*length <= MAX_FILE_BYTES && (got = read(fd, text + *length, MAX_FILE_BYTES + 1 - *length)) != 0) {
        if (got > 0)
            *length += (size_t)got;
        else if (errno != EINTR)
            return strerror(errno);
    }
    text[*length] = '\0';
    return *length > MAX_FILE_BYTES ? "it has more than 10 MiB" : NULL;
}

void configuration_read(struct configuration *configuration, const char *path) {
    struct stat status;
    *configuration = (struct configuration){0};
    if (!path || !*path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0)
        configuration->problem = strerror(errno);
    else if (!S_ISREG(status.st_mode))
        configuration->problem = "it is not a regular file";
    else if (!(configuration->text = malloc(MAX_FILE_BYTES + 2)))
        configuration->problem = strerror(ENOMEM);
    else
        configuration->problem = read_text(fd, configuration->text, &configuration->length);
    if (configuration->problem)
        configuration_free(configuration);
    if (fd >= 0)
        close(fd);
}

void configuration_free(struct configuration *configuration) {
    free(configuration->text);
    configuration->text = NULL;
    configuration->length = 0;
}

/* Whether the text has the key "dump", at any depth: a program that names it wants to dump. */
bool configuration_has_dump(const struct configuration *configuration) {
    static const char key[] = "\"dump\"";
    if (!configuration->text)
        return false;
    for (const char *at = strstr(configuration->text, key); at; at = strstr(at, key)) {
        at += strlen(key);
        if (at[strspn(at, " \t\r\n")] == ':')
            return true;
    }
    return false;
}

/* Returns why the text cannot be sent, or NULL. */
static const char *obstacle(const struct configuration *configuration) {
    if (!configuration->text)
        return configuration->problem ? configuration->problem : "it is not known";
    if (configuration->length > MAX_TOLD_BYTES)
        return "it has more than 1 MiB";
    return memchr(configuration->text, '\0', configuration->length) ? "it has a NUL in it" : NULL;
}

static void begin(struct packet *packet, const struct circumstances *circumstances) {
    const char *path = circumstances->path ? circumstances->path : ""; /* a runtime may have taken it */
    packet_begin(packet, "config");
    packet_add(packet, "by=%s", circumstances->by);
    packet_add(packet, "call=%s", circumstances->call);
    packet_add(packet, "lost=%" PRIu64, circumstances->lost);
    packet_add(packet, "path=%.*s", PATH_MAX, path);
}

bool configuration_send(const struct configuration *configuration, const struct circumstances *circumstances,
                        const struct connection *connection, uint64_t deadline_ns) {
    static struct packet packet; /* not on the stack: a thread of the program may have too little of it */
    const char *problem = obstacle(configuration);
    if (problem) {
        begin(&packet, circumstances);
        packet_add(&packet, "problem=%s", problem);
        return connection_send(connection, &packet, deadline_ns);
    }
    size_t offset = 0;
    do {
        begin(&packet, circumstances);
        packet_add(&packet, "size=%zu", configuration->length);
        packet_add(&packet, "offset=%zu", offset);
        size_t room = sizeof packet.bytes - packet.length - sizeof "text=";
        size_t rest = configuration->length - offset, length = rest < room ? rest : room;
        packet_add(&packet, "text=%.*s", (int)length, configuration->text + offset);
        if (!connection_send(connection, &packet, deadline_ns))
            return false;
        offset += length;
    } while (offset < configuration->length);
    return true;
}
