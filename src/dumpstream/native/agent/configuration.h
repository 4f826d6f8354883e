/* A dump configuration that is put in force in this process: the file as it is at that
 * moment, for the collector. The program may name any kind of file: reading it neither
 * fails nor waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "connection.h"

struct configuration {
    char *text; /* ends with NUL; NULL: not known */
    size_t length;
    const char *problem; /* why it could not be read, or NULL */
};

/* Who put a configuration in force, and with which call. */
struct circumstances {
    const char *by; /* "program" or "agent" */
    const char *call;
    const char *path;
    uint64_t lost; /* earlier configurations that the collector did not take */
};

/* Reads the file `path`. NULL and an empty path mean no file. */
void configuration_read(struct configuration *configuration, const char *path);
void configuration_free(struct configuration *configuration);

/* Whether it has a dump section. */
bool configuration_has_dump(const struct configuration *configuration);

/* Tells the collector, in as many packets as needed, until the deadline. With a deadline in
 * the past it does not wait. False: the collector has not taken all of it. One thread at a
 * time. */
bool configuration_send(const struct configuration *configuration, const struct circumstances *circumstances,
                        const struct connection *connection, uint64_t deadline_ns);
