/* A program that links the runtime; built as a shared library, an extension that
 * does so. */
#include "job.h"

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
