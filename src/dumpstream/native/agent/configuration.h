/* A dump configuration that is put in force in this process: the file as it was
 * at that moment, for the collector. What strange file a program may name is not
 * our business: whatever it is, reading it neither fails nor waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "connection.h"

/* Of a longer one only the path is told. */
#define MAX_TOLD_BYTES (1u << 20)

struct configuration {
    char *text; /* ended by NUL; NULL: not known */
    size_t length;
    const char *problem; /* why not; NULL: there is none */
};

/* Who put a configuration in force, by which call. */
struct circumstances {
    const char *by; /* "program" or "agent" */
    const char *call;
    const char *path;
    uint64_t lost; /* configurations before it that could not be told */
};

/* Reads the file `path`, which may be NULL or empty: none. */
void configuration_read(struct configuration *configuration, const char *path);
void configuration_free(struct configuration *configuration);

/* Whether it has a dump section. */
bool configuration_has_dump(const struct configuration *configuration);

/* Tells the collector, in as many packets as are needed, until the deadline;
 * one that has passed means without waiting. False: it has not taken all. By one
 * thread at a time. */
bool configuration_send(const struct configuration *configuration, const struct circumstances *circumstances,
                        const struct connection *connection, uint64_t deadline_ns);
