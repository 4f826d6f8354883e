/* The agent: the library that is preloaded into a process to capture it from
 * outside. Beside these functions it exports those of ACL that it wraps. */
#pragma once

#define DS_AGENT_API __attribute__((visibility("default")))

/* Joins the collector at the path `socket`, in a process where ACL may be
 * initialised already and the agent need not be preloaded: registers the
 * callback, and with a configuration from the collector starts the dump.
 * Returns 0, -EALREADY if joined, -ECONNREFUSED if the collector refused,
 * -ENOSYS if nothing here lets a callback register, another negative errno, or
 * the positive code with which ACL refused the configuration. */
DS_AGENT_API int ds_agent_join(const char *socket);

/* Stops the dump if joining started it, unregisters, and says goodbye; the
 * device of the calling thread is synchronised first. -ENOTCONN: not joined. */
DS_AGENT_API int ds_agent_leave(void);
