/* CANN's dump functions, as the agent calls them: registering the callback in
 * every image that has the dump library, and driving the dump by a
 * configuration. Undoes what it did and nothing else. Reports every call. */
#pragma once

#include <stdbool.h>

#include "dumpstream/acl_abi.h"

#define ACL_SUCCESS 0
#define ACL_REPEAT_INITIALIZE 100002
#define ACL_DUMP_ALREADY_RUN 100044
#define ACL_FAILURE 500001

/* Registers `callback` wherever acldumpRegCallback is defined: near `library`
 * first, in every loaded library, and if there is none in libascend_dump.so.
 * Returns whether any took it. */
bool dump_register(const void *library, acldumpCallback callback);
void dump_unregister(const void *library);

/* Starts dumping by the configuration `path`. Returns the first code that is not
 * success; nothing is left started then. */
aclError dump_start(const void *library, const char *path);
void dump_stop(const void *library);

/* Waits until the device of the calling thread has done what it was given. */
void dump_synchronize(const void *library);
