/* The least of an ACL library: it keeps the callback that is registered, so
 * that it can be called and timed. */
#include <stddef.h>

#include "dumpstream/acl_abi.h"

static acldumpCallback registered;

acldumpCallback bench_registered(void);

aclError aclInit(const char *config_path) {
    (void)config_path;
    return 0;
}

aclError aclFinalize(void) {
    return 0;
}

aclError aclmdlInitDump(void) {
    return 0;
}

aclError aclmdlSetDump(const char *config_path) {
    (void)config_path;
    return 0;
}

aclError aclmdlFinalizeDump(void) {
    return 0;
}

aclError acldumpRegCallback(acldumpCallback callback, int32_t flag) {
    (void)flag;
    registered = callback;
    return 0;
}

void acldumpUnregCallback(void) {
    registered = NULL;
}

/* What was registered last; NULL if nothing was. */
acldumpCallback bench_registered(void) {
    return registered;
}
