/* The libraries of this process, and the ACL functions that they define.
 *
 * The agent defines functions of the same names: these functions never return those. */
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

/* The next definition of `name` in the global scope after the agent's. */
void *next_definition(const char *name);

/* The definition in the library that `address` is in, or in the libraries that it needs. */
void *definition_near(const char *name, const void *address);

/* All definitions, however their libraries were loaded. The definition near `first`, which
 * may be NULL, comes first. */
void all_definitions(const char *name, const void *first, struct definitions *found);

/* Loads `library`, or the library of that name in the directory of the library that
 * `address` is in. It is never unloaded. */
bool load_library(const char *library, const void *address);

/* The path of the library that `address` is in; "" if it is not known. */
const char *library_of(const void *address);
