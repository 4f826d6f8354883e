/* What the dump section of acl.json says, and what CANN refuses in it. */
#pragma once

#include <stdbool.h>

#include "config/config.h"
#include "config/json.h"

/* Fills in `config`, which then points into `dump`. Returns false if CANN would refuse it.
 * Only with `on_disk` must dump_path exist. */
bool settings_read(const struct json *dump, struct dump_config *config, bool on_disk);
