#include "libraries.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dlsym_fn real_dlsym(void) {
    static _Atomic(dlsym_fn) known;
    /* The version of today, and the first version on each architecture. */
    static const char *const VERSIONS[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    dlsym_fn real = atomic_load_explicit(&known, memory_order_relaxed);
    for (size_t i = 0; !real && i < sizeof VERSIONS / sizeof *VERSIONS; i++) {
        real = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", VERSIONS[i]);
        atomic_store_explicit(&known, real, memory_order_relaxed);
    }
    return real;
}

const char *library_of(const void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

bool is_own(const void *address) {
    static const char here;
    Dl_info own, other;
    return dladdr(&here, &own) && dladdr(address, &other) && own.dli_fbase == other.dli_fbase;
}

void *next_definition(const char *name) {
    void *address = real_dlsym()(RTLD_NEXT, name);
    return address && !is_own(address) ? address : NULL;
}

/* Searches one loaded library and those that it needs. */
static void *definition_in(const char *path, const char *name) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    void *address = real_dlsym()(handle, name);
    dlclose(handle);
    return address && !is_own(address) ? address : NULL;
}

void *definition_near(const char *name, const void *address) {
    const char *path = library_of(address);
    return *path ? definition_in(path, name) : NULL;
}

/* The paths of all loaded libraries. */
struct names {
    char **paths;
    size_t count;
};

static int collect(struct dl_phdr_info *info, size_t size, void *argument) {
    struct names *names = argument;
    (void)size;
    if (!info->dlpi_name || !*info->dlpi_name)
        return 0; /* the program itself: a search there would find the agent first */
    char **paths = realloc(names->paths, (names->count + 1) * sizeof *paths);
    if (!paths)
        return 1;
    names->paths = paths;
    paths[names->count] = strdup(info->dlpi_name);
    if (!paths[names->count])
        return 1;
    names->count++;
    return 0;
}

static void add_definition(struct definitions *found, void *address) {
    if (!address || found->count == MAX_DEFINITIONS)
        return;
    for (unsigned i = 0; i < found->count; i++) {
        if (found->address[i] == address)
            return;
    }
    found->address[found->count++] = address;
}

void all_definitions(const char *name, const void *first, struct definitions *found) {
    struct names names = {0};
    found->count = 0;
    add_definition(found, definition_near(name, first));
    add_definition(found, next_definition(name));
    /* First all paths: libraries must not be opened inside dl_iterate_phdr. */
    dl_iterate_phdr(collect, &names);
    for (size_t i = 0; i < names.count; i++) {
        add_definition(found, definition_in(names.paths[i], name));
        free(names.paths[i]);
    }
    free(names.paths);
}

bool load_library(const char *library, const void *address) {
    char beside[PATH_MAX];
    const char *path = library_of(address);
    const char *slash = strrchr(path, '/');
    if (dlopen(library, RTLD_NOW | RTLD_LOCAL))
        return true;
    if (!slash)
        return false;
    int length = snprintf(beside, sizeof beside, "%.*s/%s", (int)(slash - path), path, library);
    return length < (int)sizeof beside && dlopen(beside, RTLD_NOW | RTLD_LOCAL);
}
