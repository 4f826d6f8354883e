/* Reads the dump configuration file, acl.json. */
#ifndef DSSIM_CONFIG_H
#define DSSIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "codes.h"

enum { MAX_DUMP_PATH = 512 };

struct dump_config {
    bool active; /* operators are dumped */
    char dump_path[MAX_DUMP_PATH + 1];
};

struct config_file {
    bool empty;
    uint64_t content_hash;
    struct dump_config dump;
};

/* Returns ACL_SUCCESS, or the code with which CANN refuses such a file. */
aclError config_read(const char *path, struct config_file *file);

#endif
