/* The names of dump files as nearly all of them are: type, operator, task, stream and time, with dots
 * between. The type of an aclnn call has its number in it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dumpstream/journal.h"

#define DS_NO_SEQUENCE (-1)

struct ds_operator_name {
    uint64_t operator_hash; /* of the type, without the number of a call, and the operator */
    int64_t sequence;       /* the number of the call, or DS_NO_SEQUENCE */
    int64_t task, time;
};

/* Reads an untrusted name; false if it is another one, or one that takes a closer look. */
bool ds_operator_name_read(const char *name, size_t length, struct ds_journal_key key,
                           struct ds_operator_name *found);
