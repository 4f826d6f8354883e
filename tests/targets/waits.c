/* A library that counts the waits that ended without what was waited for, and says so at the end:
 * how long a program was held up, in a number that a busy machine does not change. */
#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int in_vain;

int poll(struct pollfd *watched, nfds_t count, int timeout_ms) {
    int (*next)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    int found = next(watched, count, timeout_ms);
    if (found == 0 && timeout_ms > 0)
        atomic_fetch_add(&in_vain, 1);
    return found;
}

__attribute__((destructor)) static void say(void) {
    fprintf(stderr, "waits in vain: %d\n", in_vain);
}
