/* A front library like those of CANN: its ACL functions forward to the functions of the same
 * name in another library. */
#include <dlfcn.h>
#include <stddef.h>

#include "api/sim.h"

static void *behind(const char *name) {
    return dlsym(dlopen(BEHIND, RTLD_NOW | RTLD_LOCAL), name);
}

aclError aclInit(const char *config_path) {
    aclError (*real)(const char *) = behind("aclInit");
    return real(config_path);
}

aclError aclFinalize(void) {
    aclError (*real)(void) = behind("aclFinalize");
    return real();
}

aclError aclmdlInitDump(void) {
    aclError (*real)(void) = behind("aclmdlInitDump");
    return real();
}

aclError aclmdlSetDump(const char *config_path) {
    aclError (*real)(const char *) = behind("aclmdlSetDump");
    return real(config_path);
}

aclError aclmdlFinalizeDump(void) {
    aclError (*real)(void) = behind("aclmdlFinalizeDump");
    return real();
}
