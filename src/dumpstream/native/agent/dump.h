/* CANN's dump functions, as the agent calls them: it registers the callback with every copy
 * of the dump library, and drives the dump with a configuration. It undoes only what it did
 * itself, and reports every call. */
#pragma once

#include <stdbool.h>

#include "dumpstream/acl_abi.h"

#define ACL_SUCCESS 0
#define ACL_REPEAT_INITIALIZE 100002
#define ACL_DUMP_ALREADY_RUN 100044
#define ACL_FAILURE 500001

/* Registers `callback` with every acldumpRegCallback in the process, that near `library`
 * first. If there is no such function, loads libascend_dump.so. Returns whether any call
 * succeeded. */
bool dump_register(const void *library, acldumpCallback callback);
void dump_unregister(const void *library);

/* Starts the dump with the configuration `path`. Returns the first code that is not success;
 * the dump is then not started. */
aclError dump_start(const void *library, const char *path);
void dump_stop(const void *library);

/* Waits until the device of the calling thread has finished its work. */
void dump_synchronize(const void *library);
