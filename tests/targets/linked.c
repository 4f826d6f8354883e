/* A program that links the runtime or, built as a shared library, an extension that links it.
 * With LOOKED_UP it still looks the functions up with dlsym, as code for several releases of
 * a library does. */
#include <dlfcn.h>

#include "job.h"

#ifdef LOOKED_UP
#define aclInit dlsym(RTLD_DEFAULT, "aclInit")
#define aclFinalize dlsym(RTLD_DEFAULT, "aclFinalize")
#endif

int extension_main(int argc, char **argv);

int extension_main(int argc, char **argv) {
    const struct acl acl = {aclInit,
                            aclFinalize,
                            aclFinalizeReference,
                            aclmdlInitDump,
                            aclmdlSetDump,
                            aclmdlFinalizeDump,
                            acldumpRegCallback,
                            aclrtSetDevice,
                            dssim_workload_open,
                            dssim_load,
                            dssim_run};
    return job_run(&acl, argc, argv);
}

#ifdef PROGRAM
int main(int argc, char **argv) {
    return extension_main(argc, argv);
}
#endif
