/* The state behind CANN's functions. */
#pragma once

#include "device/exception.h"

struct dump_order {
    struct dump_config *config; /* in force, or NULL; the caller must release it */
    uint64_t dump;              /* the number of its dump */
    struct exception_dump exception;
};

/* What a model that is loaded now, or a call that is made now, must dump, and what is
 * dumped of an operator that fails. */
struct dump_order runtime_dump_order(void);

/* Delivers what is queued, stops everything and resets all state. */
void runtime_reset(void);
