/* A captured process's time with its collector: from the first successful
 * aclInit, or ds_agent_join, to aclFinalize, ds_agent_leave or the end.
 *
 * Nothing here runs before that: a process that never touches ACL has no
 * connection, no ring and no thread. There never is a thread. A forked child
 * begins with nothing. All functions may be called from any thread and leave
 * errno alone. */
#pragma once

#include <stdbool.h>

#include "dumpstream/acl_abi.h"

/* Whether the calling thread is in one of these functions: what ACL then calls,
 * it calls for the agent. */
bool session_is_working(void);

/* Whether this process may be captured: a collector's socket is known. */
bool session_possible(void);

/* ACL was initialised, with `config_path` if any, by the function `init`; `first`
 * is false if it had been already, and that configuration is not in force. */
void session_acl_initialized(const void *init, const char *config_path, bool first);

/* The program is about to finalise ACL, and has done so; `last` is false if others
 * still use it. The dump is stopped before, and the callback unregistered after:
 * aclFinalize still delivers what is queued if aclInit had started the dump
 * server, as it does for any configuration. */
void session_acl_finalizing(bool last);
void session_acl_finalized(bool last);

/* The program calls a function that drives the dump: from now on the agent only
 * keeps its callback registered. */
void session_yield(const char *call);

/* The program has put the configuration `path` in force by `call`. */
void session_configured(const char *call, const char *path);

/* The program registers a callback of its own, which gets what the agent gets.
 * Returns what to register instead. */
acldumpCallback session_share(acldumpCallback callback);

/* The program unregisters its callback; false: the agent's must stay. */
bool session_unshare(void);
