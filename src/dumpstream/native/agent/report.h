/* What the agent tells its collector. All of it is called under the session's lock, except
 * report_losses: it may be called when the process ends.
 *
 * A collector that does not read is waited for once. While it goes on not reading, further reports
 * are not waited for. */
#pragma once

#include "configuration.h"
#include "dumpstream/acl_abi.h"
#include "dumpstream/ring.h"

/* Begins with a new collector, which stays where it is. */
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
