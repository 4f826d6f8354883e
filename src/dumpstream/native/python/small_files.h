/* Small files that Python names by their paths, or has in memory. */
#pragma once

#include "dumpstream/file_pairs.h"
#include "module.h"

/* A file: its path, or its bytes. */
struct item {
    PyObject *path; /* bytes, or NULL */
    const char *text;
    Py_buffer view;
};

struct items {
    struct item *item;
    Py_ssize_t count;
};

/* Takes the items of a list, until they are released. */
int take_items(PyObject *list, struct items *items);
void release_items(struct items *items);

/* What reads files one after the other, or NULL. Needs no GIL. */
struct reading;
struct reading *begin_reading(void);
void end_reading(struct reading *reading);

/* Returns the bytes of the file, valid until the next, or NULL. */
const uint8_t *read_item(const struct item *item, struct reading *reading, size_t *length);
