/* What a configuration dumps of an operator. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "workload/graph.h"
#include "workload/workload.h"

bool selection_has_step(const struct dump_config *config, uint64_t step);

/* Returns the tensors that dump_list, its blacklists and dump_mode select from an operator of
 * a model, as bits: the inputs first, from bit 0 on. */
uint32_t selection_tensors(const struct dump_config *config, const struct dssim_workload *workload,
                           const struct op *op);

/* Returns whether the outputs of the watched operators are dumped after this one. */
bool selection_triggers(const struct dump_config *config, const struct op *op);

/* Finds the operator of the model at `place` among those that are watched; false: there are fewer. */
bool selection_watched(const struct dump_config *config, const struct dssim_workload *workload,
                       uint64_t model, uint32_t place, struct op *watched);
