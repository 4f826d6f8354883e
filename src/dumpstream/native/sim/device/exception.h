/* Exception dumps: what an operator that fails leaves on disk, without the callback. */
#pragma once

#include <limits.h>

#include "device/dumpfile.h"

struct exception_dump {
    enum scene scene;    /* SCENE_NONE: switched off */
    char root[PATH_MAX]; /* where they go, or went last; empty if there was no dump */
};

/* Switches on what the environment asks for. Returns whether it asks for anything. */
bool exception_of_environment(struct exception_dump *dump);

/* Finds where the dumps go that a configuration switches on: the environment decides, then `dump_path`. */
void exception_find_root(const char *dump_path, char root[PATH_MAX]);

/* Fills in the directory for a device, followed by `last`. Returns 0 or -ENAMETOOLONG. */
int exception_path(const char *root, uint64_t device, const char *last, char out[PATH_MAX]);

/* Writes the dump of an operator that failed. Returns 0 or -errno. */
int exception_write(const struct exception_dump *dump, const struct op *op, uint64_t step);

/* Makes the header of a file with a name and data, and writes the file to disk. Replaces a
 * file of the same name. Returns 0 or -errno. */
int exception_store(struct dump_file *file);
