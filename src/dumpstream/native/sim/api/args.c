#include "api/args.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "api/codes.h"
#include "api/sim.h"
#include "device/disk.h"

static atomic_bool started;

aclError aclopStartDumpArgs(uint32_t dump_type, const char *path) {
    bool stopped = false;
    if (path == NULL || !*path || !(dump_type & ACL_OP_DUMP_OP_AICORE_ARGS))
        return ACL_ERROR_FAILURE;
    if (disk_make_directory(path) != 0)
        return ACL_ERROR_FAILURE;
    return atomic_compare_exchange_strong(&started, &stopped, true) ? ACL_SUCCESS : ACL_ERROR_FAILURE;
}

/* Also succeeds if nothing was started. */
aclError aclopStopDumpArgs(uint32_t dump_type) {
    if (dump_type & ACL_OP_DUMP_OP_AICORE_ARGS)
        atomic_store(&started, false);
    return ACL_SUCCESS;
}

void args_reset(void) {
    atomic_store(&started, false);
}
