/* A program that opens the runtime, which its first argument names, with RTLD_LOCAL. */
#include <dlfcn.h>
#include <stdio.h>

#include "job.h"

static void *library;
static int missing;

static void *find(const char *name) {
    void *address = dlsym(library, name);
    missing += !address;
    return address;
}

int main(int argc, char **argv) {
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    const struct acl acl = {find("aclInit"),
                            find("aclFinalize"),
                            find("aclFinalizeReference"),
                            find("aclmdlInitDump"),
                            find("aclmdlSetDump"),
                            find("aclmdlFinalizeDump"),
                            find("acldumpRegCallback"),
                            find("aclrtSetDevice"),
                            find("dssim_workload_open"),
                            find("dssim_load"),
                            find("dssim_run")};
    return missing ? 3 : job_run(&acl, argc - 1, argv + 1);
}
