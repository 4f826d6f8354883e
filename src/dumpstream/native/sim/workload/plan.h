/* The files that a configuration dumps after an operator in a step. */
#pragma once

#include "config/config.h"
#include "workload/graph.h"

struct planned {
    struct op op;        /* the operator that the tensors belong to */
    uint64_t step;       /* they are dumped in this step, ... */
    struct op after;     /* ... after this operator, ... */
    uint32_t place;      /* ... among the files after that operator */
    uint32_t tensors;    /* as bits: the inputs first, from bit 0 on */
    bool is_before;      /* dumped before the operator ran */
    bool is_kernel;      /* of the kernel level */
    bool is_opdebug;     /* the record of its overflow, instead of its tensors */
    uint32_t statistics; /* bits of stats.h; 0: the tensors themselves */
};

/* Returns false if fewer than `place` + 1 files come after the operator. */
bool plan_file(const struct dump_config *config, const struct op *after, uint64_t step, uint32_t place,
               struct planned *file);
