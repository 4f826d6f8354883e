/* The dump files of a directory, and what their names say. Nothing calls into Python. */
#pragma once

#include "dumpstream/operator_name.h"

struct ds_listing {
    char *text; /* all names, each with a 0 behind it */
    size_t length, room;
    size_t *start; /* of the names in the text: */
    size_t count, start_room;
    const char **file; /* regular files, in order, ... */
    const char **folder;
    size_t files, folders;
    struct ds_operator_name *said; /* ... and what their names say; NULL if one takes a closer look */
};

/* Lists the directory `path`, without what begins with a dot, links, and everything that is neither a file
 * nor a directory. Returns 0, or a negative errno. The caller frees the listing in any case. */
int ds_listing_read(struct ds_listing *listing, const char *path, struct ds_journal_key key);
void ds_listing_free(struct ds_listing *listing);
