/* What the agent tells its collector. Called with the session's lock held; only
 * report_losses may also be called when the process ends.
 *
 * If the collector does not read, the agent waits for it once, and not again until the
 * collector reads. */
#pragma once

#include "configuration.h"
#include "dumpstream/acl_abi.h"
#include "dumpstream/ring.h"

/* Begins with a new collector. The connection must stay where it is. */
void report_begin(const struct connection *collector);

/* The agent has called `function` of ACL. */
void report_call(const char *call, const void *function, aclError code);

/* The program drives the dump itself. Only the first report of a session is sent. */
void report_driven(const char *call);

/* `by`, which is "program" or "agent", has put the configuration of the file `path` in force. */
void report_configuration(const struct configuration *configuration, const char *by, const char *call,
                          const char *path);
void report_configuration_file(const char *by, const char *call, const char *path);

/* Says goodbye with what the ring counted, and then as report_losses. */
void report_bye(const struct ds_ring *ring);

/* Says on standard error what the collector will never learn. */
void report_losses(const struct ds_ring *ring);
