/* A library that wraps a function of the C library by RTLD_NEXT, as tracers do:
 * whatever wraps dlsym must not change what "next" means. */
#include <dlfcn.h>
#include <unistd.h>

pid_t getpid(void) {
    pid_t (*next)(void) = dlsym(RTLD_NEXT, "getpid");
    return next();
}
