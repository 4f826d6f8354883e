/* The state behind CANN's entry points. */
#pragma once

#include "config/config.h"
#include "device/exception.h"

struct dump_order {
    struct dump_config *config; /* in force, to be released; NULL if there is none */
    uint64_t dump;              /* number of the dump that it belongs to */
    struct exception_dump exception;
};

/* What a model that is loaded now, or a call that is made now, has to dump,
 * and what is dumped of an operator that fails. */
struct dump_order runtime_dump_order(void);

/* Chooses whether finalising waits for the last callback, as CANN does from 9.1 on. */
void runtime_set_joining(bool joining);

/* Stops everything, delivering what is queued, and forgets every state. */
void runtime_reset(void);
