#include "device/debugging.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "device/thread.h"
#include "workload/workload.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool switched_on;
static struct {
    bool set;
    int claim; /* a descriptor, if the device has the mode; else 0 */
} devices[MAX_DEVICES];

/* Simulated devices are shared by the processes of a user with the same temporary directory. */
static uint64_t machine(void) {
    const char *directory = getenv("TMPDIR");
    uint64_t value = UINT64_C(0xcbf29ce484222325) ^ getuid();
    for (; directory != NULL && *directory; directory++)
        value = (value ^ (unsigned char)*directory) * UINT64_C(0x100000001b3);
    return value;
}

/* Binds a name that belongs to one process at a time. The kernel frees it when the process ends, however it
 * ends. Returns 0 if another process has it. */
static int claim(uint32_t device) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "dssim-debugging-%llx-%u",
                          (unsigned long long)machine(), device);
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (descriptor > 0 && bind(descriptor, (struct sockaddr *)&name, bytes) == 0)
        return descriptor;
    if (descriptor >= 0)
        close(descriptor);
    return 0;
}

void debugging_switch(bool on) {
    HOLD(&lock);
    switched_on = on;
}

void debugging_set_device(uint32_t device) {
    HOLD(&lock);
    if (!devices[device].set && switched_on)
        devices[device].claim = claim(device);
    devices[device].set = true;
}

/* The caller holds the lock. */
static void reset(uint32_t device) {
    if (devices[device].claim > 0)
        close(devices[device].claim);
    devices[device].claim = 0;
    devices[device].set = false;
}

void debugging_reset_device(uint32_t device) {
    HOLD(&lock);
    reset(device);
}

void debugging_reset_all(void) {
    HOLD(&lock);
    switched_on = false;
    for (uint32_t device = 0; device < MAX_DEVICES; device++)
        reset(device);
}

bool debugging_has(uint64_t device) {
    HOLD(&lock);
    return devices[device].claim > 0;
}

/* A forked child has to set its devices itself. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    for (uint32_t device = 0; device < MAX_DEVICES; device++)
        reset(device);
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
