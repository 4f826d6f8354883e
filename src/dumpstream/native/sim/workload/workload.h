/* What the simulated models dump. simulation/workload.py explains the keys of its text. */
#pragma once

#include <stdbool.h>

#include "api/sim.h"
#include "workload/tensors.h"

/* In the order in which they apply. */
#define FAULTS(X)                                                                                            \
    X(FAULT_STATS_TEXT, "stats_text")                                                                        \
    X(FAULT_HEADER_ONLY, "header_only")                                                                      \
    X(FAULT_NULL_ADDRESS, "null_address")                                                                    \
    X(FAULT_TRUNCATED, "truncated")                                                                          \
    X(FAULT_MISSING_LAST, "missing_last")                                                                    \
    X(FAULT_RESEND_SLICE, "resend_slice")                                                                    \
    X(FAULT_NAN, "nan")                                                                                      \
    X(FAULT_OVERFLOW, "overflow")                                                                            \
    X(FAULT_SATURATE, "saturate")                                                                            \
    X(FAULT_FAILS, "fails")                                                                                  \
    X(FAULT_OFFSETS, "offsets")                                                                              \
    X(FAULT_SHUFFLE, "shuffle")

#define CONSTANT(constant, name) constant,
enum fault { FAULTS(CONSTANT) FAULT_COUNT };

extern const char *const fault_names[FAULT_COUNT];

enum { MAX_SELECTORS = 32 };

#define EVERY_RANK UINT64_MAX
#define EVERY_STEP UINT64_MAX

struct selector {
    enum { SELECT_SHARE, SELECT_OP, SELECT_LOADER, SELECT_WEIGHTS } kind;
    uint64_t rank; /* or EVERY_RANK */
    double share;
    uint64_t op;
    uint64_t step;   /* or EVERY_STEP */
    double relative; /* the amount of a perturbation */
};

/* A rank that is named has only the items that name it. */
struct selectors {
    uint32_t count;
    struct selector item[MAX_SELECTORS];
};

/* One operator of every model overwrites the first output of an earlier one. */
struct overwrite {
    bool happens;
    uint64_t by;
    uint64_t victim;
    bool once; /* in one step */
    uint64_t step;
};

enum {
    MAX_DTYPES = 32,
    MAX_DEVICES = 1024,
    MAX_DEVICE_THREADS = 64,
    MAX_OP_TYPES = 32,
    MAX_OP_TYPE = 32,
    MAX_PART = 16,
    MAX_SHAPE = 8,
};

enum { CANN_8_5, CANN_9_1, CANN_MASTER };

struct flow;

/* The fields have the names of the keys. */
struct dssim_workload {
    uint64_t seed; /* of the clock; with the rank, of all other values */
    uint64_t rank;
    uint64_t ranks;
    uint64_t flow; /* 1: operators read what earlier ones wrote */
    int64_t skew;  /* microseconds by which the clock of each rank is ahead of that of the one before */
    uint64_t models;
    uint64_t ops;
    uint64_t inputs;
    uint64_t outputs;
    uint64_t single_ops; /* calls in a step */
    uint64_t device_threads;
    uint64_t device_id;
    uint64_t rate;
    uint64_t slice_bytes;
    uint64_t queue_bytes;
    uint64_t io_files;     /* 1: inputs and outputs of an operator are in files of their own */
    uint64_t opdebug;      /* 1: overflow records have the newer layout */
    uint64_t stats_by;     /* 1: the AICPU makes statistics, not a kernel */
    uint64_t after_detail; /* 1: a detailed exception dump ends the process */
    uint64_t cann;
    struct byte_range {
        uint64_t least, most;
    } tensor_bytes;
    struct shape {
        uint32_t dims; /* 0: tensor sizes come from tensor_bytes */
        uint64_t dim[MAX_SHAPE];
    } shape;
    struct dtypes {
        uint32_t count;
        enum dtype dtype[MAX_DTYPES];
    } dtypes;
    struct op_types {
        uint32_t count;
        char type[MAX_OP_TYPES][MAX_OP_TYPE];
    } op_types;
    struct overwrite overwrite;
    struct undumped {
        uint32_t count;
        uint64_t op[MAX_SELECTORS];
    } undumped;
    struct selectors perturb;
    struct selectors faults[FAULT_COUNT];
    struct flow *values; /* of the data flow; NULL without one */
};

void workload_set_defaults(struct dssim_workload *workload);
