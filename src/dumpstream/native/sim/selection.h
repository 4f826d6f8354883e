/* What a configuration takes of an operator. */
#ifndef DSSIM_SELECTION_H
#define DSSIM_SELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "graph.h"
#include "workload.h"

bool selection_has_step(const struct dump_config *config, uint64_t step);

/* Returns the tensors that dump_list, its blacklists and dump_mode leave of
 * an operator of a model, as bits: the inputs first, from bit 0 on. */
uint32_t selection_tensors(const struct dump_config *config, const struct dssim_workload *workload,
                           const struct op *op);

#endif
