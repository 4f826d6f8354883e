/* A compatibility front, as CANN has them: a library whose ACL functions forward to
 * those of the same name in the library behind it. */
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
