/* The data flow of a step: which operator reads what, and where in the device's memory it lies. It is the
 * same in every step, and on every rank. */
#pragma once

#include "workload/workload.h"

enum flow_kind {
    KIND_DATA,
    KIND_MATMUL,
    KIND_ADD,
    KIND_MUL,
    KIND_RELU,
    KIND_LEAKY, /* of types that are not known */
    KIND_LAYER_NORM,
    KIND_SOFTMAX,
    KIND_GATHER,
    KIND_CAST,
    KIND_APPLY, /* changes a weight */
    KIND_ALL_REDUCE,
    KIND_BROADCAST,
    KIND_ALL_GATHER,
    KIND_REDUCE_SCATTER,
    KIND_SHIFT, /* each rank gets what the rank before it has */
};

enum source {
    SOURCE_OP,
    SOURCE_LOADER, /* the host writes it before the step */
    SOURCE_WEIGHT, /* it outlives the step */
    SOURCE_JOIN,   /* two operators write a half of it each */
    SOURCE_SLICE,  /* a part of another tensor */
};

enum weight { WEIGHT_MATRIX, WEIGHT_GAIN, WEIGHT_BIAS };

enum { MAX_FLOW_INPUTS = 3, MAX_FLOW_OUTPUTS = 3, MAX_COLUMNS = 256, NO_TENSOR = UINT32_MAX };

struct flow_tensor {
    enum source source;
    enum dtype dtype;
    uint32_t rows, columns;
    uint32_t dims;
    uint64_t dim[MAX_SHAPE];
    uint64_t bytes;
    uint64_t writer;  /* the operator that writes it; of a weight: that it belongs to */
    uint32_t index;   /* among the outputs of that operator */
    uint32_t base;    /* the tensor that it is a part of; itself otherwise */
    uint64_t offset;  /* in the base, on rank 0, ... */
    uint64_t stride;  /* ... and how much further on the next rank */
    uint32_t uses;    /* by operators */
    uint64_t last;    /* of a base: the last operator that reads or writes it */
    uint64_t address; /* of a base: in the memory of the device */
    uint64_t place;   /* of a base: among all values of a step, of which none is overwritten */
    double size;      /* about the root of the mean square of its values, and ... */
    double bound;     /* ... the largest absolute value, without faults */
    enum weight weight;
    double norm;         /* of the columns of a matrix */
    bool is_joined;      /* of a join: both halves are written */
    bool is_weight;      /* what an operator made of a weight */
    bool is_overwritten; /* an operator that works in place has taken its memory over */
    bool is_trained;     /* an operator changes the weight; else the host does, after each step */
};

struct flow_op {
    enum flow_kind kind;
    uint32_t inputs, outputs;
    uint32_t input[MAX_FLOW_INPUTS], output[MAX_FLOW_OUTPUTS];
};

struct flow_program {
    uint64_t key;
    struct flow_op *ops;
    uint64_t op_count;
    struct flow_tensor *tensors;
    uint32_t tensor_count, tensor_room;
    uint64_t memory_bytes; /* of the device */
    uint64_t value_bytes;  /* of all tensors of a step */
    bool exchanges;        /* it has collectives */
};

/* Returns NULL if there is no memory. */
struct flow_program *program_build(const struct dssim_workload *workload);
void program_free(struct flow_program *program);

/* Whether the operator writes its output over the input. */
bool program_is_in_place(const struct flow_program *program, uint32_t input, uint32_t output);

static inline bool kind_is_collective(enum flow_kind kind) {
    return kind >= KIND_ALL_REDUCE;
}
