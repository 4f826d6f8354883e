/* The state behind CANN's entry points. */
#ifndef DSSIM_RUNTIME_H
#define DSSIM_RUNTIME_H

#include "config.h"
#include "record.h"

/* Returns the record thread to push to, and the configuration in force; NULL
 * if nothing is to be dumped. To be given back with record_release. */
struct record *runtime_dump_target(struct dump_config *config);

/* Chooses whether finalising waits for the last callback, as CANN does from 9.1 on. */
void runtime_set_joining(bool joining);

/* Stops everything, delivering what is queued, and forgets every state. */
void runtime_reset(void);

#endif
