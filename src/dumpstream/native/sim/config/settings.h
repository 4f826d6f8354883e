/* What the dump section of acl.json says, and what CANN refuses in it. */
#pragma once

#include <stdbool.h>

#include "config/config.h"
#include "config/json.h"

/* Fills in `config`, which keeps pointing into `dump`. Returns false if CANN
 * would refuse it; whether dump_path exists matters only with `on_disk`. */
bool settings_read(const struct json *dump, struct dump_config *config, bool on_disk);
