/* What a program is built of, operator by operator: its tensors, and the choices of what an operator reads.
 */
#pragma once

#include "flow/program.h"

/* The bound of values that are added or multiplied; far below what their type can hold. */
static inline double most_bound(enum dtype dtype) {
    return dtype == DTYPE_FLOAT8_E4M3FN ? 64 : 512;
}

/* What is known while the program is built, operator by operator. */
struct builder {
    const struct dssim_workload *workload;
    struct flow_program *program;
    uint64_t number;
    uint64_t key;     /* of the operator's choices */
    uint64_t model;   /* of the operator */
    uint32_t first;   /* the first tensor of the model */
    uint32_t current; /* what the next operator most likely reads, or NO_TENSOR */
    uint32_t loaded;  /* what the loader brought to the model, or NO_TENSOR */
    uint32_t rows;    /* of a batch */
    uint32_t whole;   /* while the operators of a split run: what they read, ... */
    uint32_t joined;  /* ... and what they write; else NO_TENSOR */
    uint32_t half;    /* which half the operator works on */
    bool failed;      /* there is no memory */
};

/* A number below `bound` that the seed, the operator and `what` decide. */
uint64_t builder_draw(const struct builder *builder, uint64_t what, uint64_t bound);

static inline struct flow_tensor *tensor_of(const struct builder *builder, uint32_t id) {
    return &builder->program->tensors[id];
}

/* These add a tensor, which moves the others, and return its number. */
uint32_t builder_add(struct builder *builder, enum source source, enum dtype dtype, uint32_t rows,
                     uint32_t columns);
uint32_t builder_add_part(struct builder *builder, enum source source, uint32_t base, uint32_t rows,
                          uint64_t offset);
uint32_t builder_add_weight(struct builder *builder, enum weight weight, const struct flow_tensor *like,
                            double norm);

/* A batch has the shape of the workload, or one of a drawn size. */
uint32_t builder_add_batch(struct builder *builder, enum source source);

/* The batch that the loader brings to the model. */
uint32_t builder_load(struct builder *builder);

/* Makes a tensor an input, or an output, of the operator. */
void builder_read(struct builder *builder, uint32_t id);
struct flow_tensor *builder_write(struct builder *builder, uint32_t id, double size, double bound);

/* One of the floating types of the workload. */
enum dtype builder_draw_dtype(const struct builder *builder);

/* What the operator reads first: mostly what the one before it wrote, at times something older. */
uint32_t builder_choose_input(struct builder *builder);

/* Another tensor like `id` that keeps the result within bounds: one that no operator has read yet, rather
 * than one that was read. NO_TENSOR if there is none, and by chance. */
uint32_t builder_choose_operand(const struct builder *builder, uint32_t id, bool is_product);

/* The weight of an earlier operator of the model that the gradient can change, or one of its own. */
uint32_t builder_choose_weight(struct builder *builder, const struct flow_tensor *gradient);
