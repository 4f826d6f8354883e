/* Exception dumps: what an operator that fails leaves on disk, past the callback. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "config/config.h"
#include "device/dumpfile.h"
#include "workload/graph.h"
#include "workload/workload.h"

struct exception_dump {
    enum scene scene;    /* SCENE_NONE: switched off */
    char root[PATH_MAX]; /* where they go, or went last; empty if they never did */
};

/* Returns the scene that the environment switches on by itself. */
enum scene exception_scene_of_environment(void);

/* Fills in where the dumps go, by the environment, then by `dump_path`. */
void exception_find_root(const char *dump_path, char root[PATH_MAX]);

/* Writes where the files of a device go. Returns 0 or -ENAMETOOLONG. */
int exception_directory(const char *root, uint64_t device, char *out, size_t room);

/* Writes down what is known of the operator. Returns 0 or -errno. */
int exception_write(const struct exception_dump *dump, const struct dssim_workload *workload,
                    const struct op *op, uint64_t step);

/* Makes the header of a file whose name and data are filled in, and writes it
 * to disk in place of one of the same name. Returns 0 or -errno. */
int exception_store(struct dump_file *file);
