/* The session of a captured process with its collector: from the first successful
 * aclInit, or ds_agent_join, to aclFinalize, ds_agent_leave or the end of the process.
 *
 * A process that never uses ACL has no connection and no ring. The agent never starts
 * a thread. A forked child begins without a session. All functions may be called from
 * any thread and do not change errno. */
#pragma once

#include <stdbool.h>

#include "dumpstream/acl_abi.h"

/* Whether the calling thread is in one of these functions: calls that ACL makes then
 * are made for the agent, not for the program. */
bool session_is_working(void);

/* Whether this process may be captured: a collector's socket is known. */
bool session_possible(void);

/* The function `init` has initialised ACL with `config_path`, which may be NULL. `first`
 * is false if ACL was initialised already, and that configuration is not in force. */
void session_acl_initialized(const void *init, const char *config_path, bool first);

/* The program is about to finalise ACL, and has done so. `last` is false if other parts
 * of the program still use ACL. The first call stops the dump, the second unregisters the
 * callback: if aclInit started the dump server, as it does for any configuration,
 * aclFinalize still delivers what is queued. */
void session_acl_finalizing(bool last);
void session_acl_finalized(bool last);

/* The program calls a function that drives the dump. From now on the agent only keeps
 * its callback registered. */
void session_yield(const char *call);

/* The program has put the configuration `path` in force with the function `call`. */
void session_configured(const char *call, const char *path);

/* The program registers a callback of its own. It will get every chunk that the agent
 * gets. Returns the callback to register instead. */
acldumpCallback session_share(acldumpCallback callback);

/* The program unregisters its callback. False: the agent's callback must stay. */
bool session_unshare(void);
