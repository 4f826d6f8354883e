/* Tensors with realistic values, which can be read from any byte on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_FLOAT32,
    DTYPE_FLOAT16,
    DTYPE_BFLOAT16,
    DTYPE_INT32,
    DTYPE_INT64,
    DTYPE_INT8,
    DTYPE_FLOAT8_E4M3FN,
    DTYPE_FLOAT8_E5M2,
    DTYPE_DRAWN, /* a workload chooses from those above */
    DTYPE_UINT8 = DTYPE_DRAWN,
    DTYPE_COUNT,
};

struct dtype_facts {
    const char *name;
    const char *cann_name; /* in statistics text */
    uint32_t number;       /* OutputDataType of DumpData */
    int32_t acl_number;    /* aclDataType, which programs use */
    uint32_t bytes;
    bool floating;
    float most; /* what larger values become; 0: they become infinite */
};

extern const struct dtype_facts dtype_facts[DTYPE_COUNT];

enum { MAX_DIMS = 25 };

enum part { PART_INPUT, PART_OUTPUT, PART_SPACE };

struct tensor {
    enum dtype dtype;
    enum part part;
    uint32_t index;     /* among the operator's tensors of its part */
    uint32_t kind;      /* what it is in an exception dump; 0 in other dumps */
    uint32_t arg_index; /* in an exception dump: which argument of the kernel it is */
    bool untyped;       /* in an exception dump: its type is left out */
    bool rectified;     /* like after a ReLU: no negative values, about half of them zero */
    bool has_nan;
    bool has_infinity;
    bool overwritten; /* an eighth of it holds other bytes */
    uint32_t dims;
    uint64_t dim[MAX_DIMS];
    uint64_t elements;
    uint64_t bytes;
    uint64_t address; /* 0: promised but not dumped */
    uint64_t key;
    const uint8_t *given; /* its bytes, if they are not drawn */
};

enum {
    MAXIMUM,
    MINIMUM,
    AVERAGE,
    NANS,
    NEGATIVE_INFINITIES,
    POSITIVE_INFINITIES,
    NORM,
    STATISTIC_COUNT, /* those that dumps have */
    SATURATED = STATISTIC_COUNT,
    MEASURED_COUNT,
};

/* Writes bytes [offset, offset + bytes) of the tensor to `out`. */
void tensor_read(const struct tensor *tensor, uint64_t offset, size_t bytes, uint8_t *out);

/* The norm is the square root of the sum of squares. */
void tensor_measure(const struct tensor *tensor, double statistics[MEASURED_COUNT]);
