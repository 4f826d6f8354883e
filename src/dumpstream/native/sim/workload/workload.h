/* What the simulated models dump. sim.h explains the keys of its text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/sim.h"
#include "device/proto.h"
#include "workload/tensors.h"

/* In the order in which they apply. sim.h explains them. */
#define FAULTS(X)                                                                                            \
    X(FAULT_STATS_TEXT, "stats_text")                                                                        \
    X(FAULT_HEADER_ONLY, "header_only")                                                                      \
    X(FAULT_NULL_ADDRESS, "null_address")                                                                    \
    X(FAULT_TRUNCATED, "truncated")                                                                          \
    X(FAULT_MISSING_LAST, "missing_last")                                                                    \
    X(FAULT_RESEND_SLICE, "resend_slice")                                                                    \
    X(FAULT_NAN, "nan")                                                                                      \
    X(FAULT_OVERFLOW, "overflow")                                                                            \
    X(FAULT_FAILS, "fails")                                                                                  \
    X(FAULT_OFFSETS, "offsets")                                                                              \
    X(FAULT_SHUFFLE, "shuffle")

#define CONSTANT(constant, name) constant,
enum fault { FAULTS(CONSTANT) FAULT_COUNT };

extern const char *const fault_names[FAULT_COUNT];

struct selector {
    enum { SELECT_NONE, SELECT_SHARE, SELECT_OP, SELECT_OP_AND_STEP } kind;
    double share;
    uint64_t op;
    uint64_t step;
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

struct dssim_workload {
    uint64_t seed;
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
    uint64_t least_tensor_bytes;
    uint64_t most_tensor_bytes;
    uint32_t dims; /* 0: tensor sizes come from the two above */
    uint64_t dim[MAX_SHAPE];
    uint32_t dtypes;
    enum dtype dtype[MAX_DTYPES];
    uint32_t op_types;
    char op_type[MAX_OP_TYPES][MAX_OP_TYPE];
    bool separate_io;   /* inputs and outputs of an operator are in files of their own */
    bool newer_opdebug; /* overflow records have the newer layout */
    bool aicpu_stats;   /* the AICPU makes statistics, not a kernel */
    bool finalize_joins;
    bool lenient_profiling;
    struct overwrite overwrite;
    struct selector faults[FAULT_COUNT];
};

void workload_set_defaults(struct dssim_workload *workload);

/* Applies key=value lines. Returns false with one line in `error`. */
bool workload_apply(struct dssim_workload *workload, const char *text, char *error, size_t error_bytes);
