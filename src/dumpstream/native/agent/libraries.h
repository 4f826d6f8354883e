/* The libraries of this process, and what ACL functions they define.
 *
 * The agent defines functions of the same names: those never count here. */
#pragma once

#include <stdbool.h>

#define MAX_DEFINITIONS 8

struct definitions {
    void *address[MAX_DEFINITIONS];
    unsigned count;
};

/* glibc's own dlsym. */
typedef void *(*dlsym_fn)(void *handle, const char *name);
dlsym_fn real_dlsym(void);

/* Whether `address` is one of the agent's own functions. */
bool is_own(const void *address);

/* The definition of `name` that the global scope has behind the agent. */
void *next_definition(const char *name);

/* The definition that the library around `address` has, or those it needs. */
void *definition_near(const char *name, const void *address);

/* All definitions, in whatever way their libraries were loaded; that near
 * `first` comes first, which may be NULL. */
void all_definitions(const char *name, const void *first, struct definitions *found);

/* Loads `library`, or the one of that name beside the library around `address`,
 * for good. */
bool load_library(const char *library, const void *address);

/* The file that defines `address`; "" if not known. */
const char *library_of(const void *address);
