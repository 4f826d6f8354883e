/* The agent: the library that is preloaded into a process to capture it from
 * outside. It also exports the ACL functions that it wraps. */
#pragma once

#include <stdint.h>

#define DS_AGENT_API __attribute__((visibility("default")))

/* Joins the collector at the path `socket`. ACL may be initialised already, and the
 * agent need not be preloaded. Registers the callback, and starts the dump if the
 * collector offers a configuration. Returns 0, -EALREADY if the process has joined,
 * -ECONNREFUSED if the collector refused, -ENOSYS if no library here can register a
 * callback, another negative errno, or the positive code with which ACL refused the
 * configuration. */
DS_AGENT_API int ds_agent_join(const char *socket);

/* Marks the beginning of a step: dump files that begin from now on belong to it, unless their
 * names have a step. Never waits. Returns 0, -ENOTCONN if
 * this process is not captured, which a program may ignore, or -EINVAL if the step is negative
 * or has more than 18 digits. */
DS_AGENT_API int ds_agent_step(int64_t step);

/* Synchronises the device of the calling thread, stops the dump if joining started
 * it, unregisters the callback and says goodbye. -ENOTCONN: not joined. */
DS_AGENT_API int ds_agent_leave(void);
