/* A training job on the simulated runtime, for programs that call ACL in different ways. */
#pragma once

#include "api/sim.h"

/* All functions that a job calls. */
struct acl {
    aclError (*init)(const char *config_path);
    aclError (*finalize)(void);
    aclError (*finalize_reference)(uint64_t *references);
    aclError (*init_dump)(void);
    aclError (*set_dump)(const char *config_path);
    aclError (*finalize_dump)(void);
    aclError (*register_callback)(acldumpCallback callback, int32_t flag);
    aclError (*set_device)(int32_t device);
    struct dssim_workload *(*workload_open)(const char *text, char *error, size_t error_bytes);
    void (*load)(const struct dssim_workload *workload);
    uint64_t (*run)(uint64_t steps);
};

/* Does what each argument says, in turn, and prints a line for each:
 *
 *   init[=FILE] finalize reference     aclInit, aclFinalize, aclFinalizeReference
 *   drive=FILE undrive                 aclmdlInitDump and aclmdlSetDump; aclmdlFinalizeDump
 *   set[=FILE]                         aclmdlSetDump alone
 *   thread=FILE                        aclmdlSetDump in a thread with a stack of 64 KiB
 *   register                           a callback of its own; "finalize" prints what it got
 *   run=N                              N steps of a workload of 8 files a step
 *   large=N                            N steps of a workload of 64 MiB a step
 *   fork                               goes on in a child too, and waits for it at the end
 *   close strays                       takes all descriptors from 3 on for sockets; packets that came there
 *   exit abort kill wait               ends in this way; "wait" only when its input does
 *
 * Returns 0 if nothing failed. */
int job_run(const struct acl *acl, int argc, char **argv);
