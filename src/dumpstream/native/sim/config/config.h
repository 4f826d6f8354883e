/* Reads the dump configuration, acl.json. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/codes.h"
#include "config/json.h"

enum { MAX_DUMP_PATH = 512, MAX_STEP_RANGES = 100 };

/* dump_mode and dump_level as bits. */
enum { IO_INPUTS = 1, IO_OUTPUTS = 2 };
enum { LEVEL_OP = 1, LEVEL_KERNEL = 2 };

/* The names of SCENE_BRIEF, SCENE_NORM and SCENE_DETAIL. */
#define EXCEPTION_SCENES "aic_err_brief_dump,aic_err_norm_dump,aic_err_detail_dump"

enum scene { SCENE_NONE, SCENE_LITE, SCENE_BRIEF, SCENE_NORM, SCENE_DETAIL, SCENE_WATCHER };

/* Never changes after it is read. Its holders share it. */
struct dump_config {
    atomic_uint holders;
    char *text; /* that `root` points into */
    uint64_t content_hash;
    bool profiles; /* it switches profiling on */
    struct json *root;
    const struct json *items; /* of dump_list, in `root`, or NULL */
    char dump_path[MAX_DUMP_PATH + 1];
    enum scene scene;
    uint32_t io;
    uint32_t levels;
    bool calls;          /* single-operator calls are dumped */
    bool overflow;       /* only what overflows is dumped */
    uint32_t statistics; /* bits of stats.h: text about tensors; 0: the tensors themselves */
    uint32_t ranges;     /* of steps; 0: all steps */
    struct step_range {
        uint64_t first, last;
    } range[MAX_STEP_RANGES];
};

/* Sets `config`, which the caller must release; NULL if the file is empty. Returns ACL_SUCCESS, or the
 * code with which CANN refuses such a file. */
aclError config_read(const char *path, struct dump_config **config);

/* Takes the text, which comes from malloc and ends with a NUL. Returns the configuration, which the
 * caller must release, or NULL if CANN would refuse it. Only with `on_disk` must dump_path exist. */
struct dump_config *config_parse(char *text, size_t length, bool on_disk);

/* Fills in `config`, which then points into `dump`, from the dump section. Returns false if CANN would
 * refuse it. */
bool settings_read(const struct json *dump, struct dump_config *config, bool on_disk);

/* Both accept NULL. */
struct dump_config *config_hold(struct dump_config *config);
void config_release(struct dump_config *config);

/* Whether anything goes to the callback. */
bool config_dumps(const struct dump_config *config);

static inline bool scene_is_exception(enum scene scene) {
    return scene != SCENE_NONE && scene != SCENE_WATCHER;
}
