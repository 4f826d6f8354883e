/* The agent's connection to its collector: a Unix socket for packets.
 *
 * A packet is a type and fields, each ended by NUL: "type\0key=value\0...". The program
 * around the agent may close descriptors that it does not know, and get the same numbers
 * again for files of its own. Every use therefore checks first that the socket is still the
 * one that the agent opened. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dumpstream/callback.h"

struct connection {
    int fd; /* -1: not connected */
    dev_t device;
    ino_t inode;
};

/* What the collector offers. */
struct offer {
    int ring_fd;
    uint64_t size; /* of the data lane */
    struct ds_policy policy;
    char config[PATH_MAX]; /* the path of the dump configuration to apply, or empty */
    char reason[512];      /* why there is no ring, in one line */
};

/* A packet under construction. */
struct packet {
    size_t length;
    char bytes[64 << 10];
};

void packet_begin(struct packet *packet, const char *type);

/* Adds a field "key=value", or leaves it out if it does not fit. */
__attribute__((format(printf, 2, 3))) void packet_add(struct packet *packet, const char *format, ...);

/* Connects to the collector at `path`, introduces this process, and waits for the offer of
 * a ring. Returns 0, or -errno and the reason in `offer`. */
int connection_open(struct connection *connection, const char *path, struct offer *offer);
void connection_close(struct connection *connection);

/* Sends, and waits until the deadline if the collector has not read earlier packets. With a
 * deadline in the past it does not wait. False: the collector did not take the packet. */
bool connection_send(const struct connection *connection, const struct packet *packet, uint64_t deadline_ns);

/* Wakes the collector. Never waits. */
void connection_wake(const struct connection *connection);

/* Whether the collector is known to be gone. */
bool connection_is_gone(const struct connection *connection);

/* Writes "dumpstream: ..." to the program's standard error, as one line. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
