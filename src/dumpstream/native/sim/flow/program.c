#include "flow/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "flow/builder.h"
#include "flow/memory.h"
#include "workload/graph.h"
#include "workload/random.h"

/* The first entry that a type begins with decides. */
static const struct {
    const char *prefix;
    enum flow_kind kind;
} kinds[] = {
    {"Data", KIND_DATA},
    {"MatMul", KIND_MATMUL},
    {"BatchMatMul", KIND_MATMUL},
    {"Add", KIND_ADD},
    {"Mul", KIND_MUL},
    {"Relu", KIND_RELU},
    {"LayerNorm", KIND_LAYER_NORM},
    {"Softmax", KIND_SOFTMAX},
    {"Gather", KIND_GATHER},
    {"Cast", KIND_CAST},
    {"Apply", KIND_APPLY},
    {"HcomBroadcast", KIND_BROADCAST},
    {"HcomAllGather", KIND_ALL_GATHER},
    {"HcomReduceScatter", KIND_REDUCE_SCATTER},
    {"HcomSend", KIND_SHIFT},
    {"HcomReceive", KIND_SHIFT},
    {"Hcom", KIND_ALL_REDUCE},
    {"", KIND_LEAKY},
};

static bool can_split(enum flow_kind kind) {
    return kind == KIND_MATMUL || kind == KIND_ADD || kind == KIND_MUL || kind == KIND_RELU ||
           kind == KIND_LEAKY || kind == KIND_LAYER_NORM || kind == KIND_SOFTMAX;
}

static enum flow_kind kind_of(const struct op *op) {
    const char *type = op->is_call ? call_kernel(op) : op->type;
    size_t i = 0;
    while (strncmp(type, kinds[i].prefix, strlen(kinds[i].prefix)) != 0)
        i++;
    return kinds[i].kind;
}

/* By chance, this operator and the next one work on the halves of one tensor, and write those of another. */
static void begin_split(struct builder *builder) {
    const struct dssim_workload *workload = builder->workload;
    const uint64_t next = builder->number + 1;
    if (builder->current == NO_TENSOR || next >= dssim_ops_per_step(workload) ||
        builder_draw(builder, DRAW_SPLIT, 10) != 0)
        return;
    const struct op here = graph_op(workload, builder->number), after = graph_op(workload, next);
    const struct flow_tensor whole = *tensor_of(builder, builder->current);
    if (here.model != after.model || !can_split(kind_of(&here)) || !can_split(kind_of(&after)) ||
        whole.rows % 2 != 0 || whole.base != builder->current)
        return;
    builder->whole = builder->current;
    builder->joined = builder_add(builder, SOURCE_JOIN, whole.dtype, whole.rows, whole.columns);
    builder->half = 0;
}

/* Makes the first output, which is like the tensor `like`. */
static uint32_t add_output(struct builder *builder, struct flow_tensor like, double size, double bound) {
    if (builder->whole == NO_TENSOR) {
        uint32_t id = builder_add(builder, SOURCE_OP, like.dtype, like.rows, like.columns);
        builder_write(builder, id, size, bound);
        return id;
    }
    struct flow_tensor *joined = tensor_of(builder, builder->joined);
    uint64_t offset = builder->half * (joined->bytes / 2);
    joined->size = fmax(builder->half ? joined->size : 0, size);
    joined->bound = fmax(builder->half ? joined->bound : 0, bound);
    joined->last = builder->number;
    uint32_t id = builder_add_part(builder, SOURCE_OP, builder->joined, like.rows, offset);
    builder_write(builder, id, size, bound);
    if (builder->half++ == 0)
        return builder->current;
    builder->whole = NO_TENSOR;
    tensor_of(builder, builder->joined)->is_joined = true;
    return builder->joined;
}

static void build_apply(struct builder *builder, uint32_t id) {
    const struct flow_tensor gradient = *tensor_of(builder, id);
    uint32_t weight = builder_choose_weight(builder, &gradient);
    const struct flow_tensor before = *tensor_of(builder, weight);
    tensor_of(builder, weight)->is_trained = true;
    builder_read(builder, weight);
    if (before.rows < gradient.rows)
        id = builder_add_part(builder, SOURCE_SLICE, id, before.rows, 0);
    builder_read(builder, id);
    uint32_t after = builder_add(builder, SOURCE_OP, before.dtype, before.rows, before.columns);
    struct flow_tensor *trained = builder_write(builder, after, before.size, before.bound);
    trained->is_weight = true;
    trained->dims = before.dims;
    memcpy(trained->dim, before.dim, sizeof trained->dim);
}

/* An element-wise sum or product with another tensor, or with a weight for every column. */
static uint32_t build_pair(struct builder *builder, uint32_t id, bool is_product) {
    uint32_t second = builder_choose_operand(builder, id, is_product);
    if (second == NO_TENSOR) {
        const struct flow_tensor like = *tensor_of(builder, id);
        second = builder_add_weight(builder, is_product ? WEIGHT_GAIN : WEIGHT_BIAS, &like, 0);
    }
    const struct flow_tensor one = *tensor_of(builder, id), other = *tensor_of(builder, second);
    builder_read(builder, id);
    builder_read(builder, second);
    if (other.source == SOURCE_WEIGHT)
        return add_output(builder, one, one.size, is_product ? one.bound * 1.8 : one.bound + 0.4);
    if (is_product)
        return add_output(builder, one, one.size * other.size, one.bound * other.bound);
    return add_output(builder, one, one.size + other.size, one.bound + other.bound);
}

static uint32_t build_layer_norm(struct builder *builder, uint32_t id) {
    const struct flow_tensor input = *tensor_of(builder, id);
    builder_read(builder, id);
    builder_read(builder, builder_add_weight(builder, WEIGHT_GAIN, &input, 0));
    builder_read(builder, builder_add_weight(builder, WEIGHT_BIAS, &input, 0));
    uint32_t written = add_output(builder, input, 1, 2 * sqrt(input.columns));
    for (int i = 0; i < 2; i++) {
        uint32_t moment = builder_add(builder, SOURCE_OP, DTYPE_FLOAT32, input.rows, 1);
        builder_write(builder, moment, input.size, input.bound);
    }
    return written;
}

/* As many rows as a batch has, or half of them, in an order that the loader brings. */
static uint32_t build_gather(struct builder *builder, uint32_t id) {
    struct flow_tensor input = *tensor_of(builder, id);
    const bool is_whole = input.rows < builder->rows || builder_draw(builder, DRAW_ROWS, 2);
    uint32_t rows = is_whole ? builder->rows : (input.rows + 1) / 2;
    enum dtype dtype = builder_draw(builder, DRAW_DTYPE, 2) ? DTYPE_INT64 : DTYPE_INT32;
    builder_read(builder, id);
    uint32_t indices = builder_add(builder, SOURCE_LOADER, dtype, rows, 1);
    tensor_of(builder, indices)->bound = input.rows; /* they are below it */
    tensor_of(builder, indices)->dims = 1;
    builder_read(builder, indices);
    input.rows = rows;
    return add_output(builder, input, input.size, input.bound);
}

/* All ranks together gather a tensor of which each has a slice, or scatter the sum of those of all ranks. */
static uint32_t build_collective(struct builder *builder, uint32_t id, enum flow_kind kind) {
    const uint32_t ranks = (uint32_t)builder->workload->ranks;
    if (tensor_of(builder, id)->rows < ranks)
        id = builder_load(builder);
    struct flow_tensor output = *tensor_of(builder, id);
    const uint32_t shard = output.rows < ranks ? 1 : output.rows / ranks;
    builder->program->exchanges = true;
    if (kind == KIND_ALL_GATHER) {
        const uint64_t stride = output.rows < ranks ? 0 : shard * (output.bytes / output.rows);
        id = builder_add_part(builder, SOURCE_SLICE, id, shard, 0);
        tensor_of(builder, id)->stride = stride;
        output.rows = shard * ranks;
    } else if (kind == KIND_REDUCE_SCATTER) {
        if (shard * ranks < output.rows)
            id = builder_add_part(builder, SOURCE_SLICE, id, shard * ranks, 0);
        output.rows = shard;
    }
    builder_read(builder, id);
    if (kind == KIND_ALL_REDUCE || kind == KIND_REDUCE_SCATTER) {
        output.size *= ranks;
        output.bound *= ranks;
    }
    return add_output(builder, output, output.size, output.bound);
}

/* Chooses the inputs, makes the outputs, and returns what the next operator most likely reads. */
static uint32_t build_op(struct builder *builder, enum flow_kind kind) {
    if (kind == KIND_DATA) {
        uint32_t batch = builder->loaded = builder_add_batch(builder, SOURCE_OP);
        builder_write(builder, batch, 0.7, 4);
        return batch;
    }
    uint32_t id = builder_choose_input(builder);
    struct flow_tensor input = *tensor_of(builder, id);
    double ranks = kind_is_collective(kind) ? (double)builder->workload->ranks : 1;
    if (builder->whole == NO_TENSOR && input.bound * ranks > most_bound(input.dtype)) {
        id = builder_load(builder);
        input = *tensor_of(builder, id);
    }
    switch (kind) {
    case KIND_ADD:
    case KIND_MUL:
        return build_pair(builder, id, kind == KIND_MUL);
    case KIND_LAYER_NORM:
        return build_layer_norm(builder, id);
    case KIND_GATHER:
        return build_gather(builder, id);
    case KIND_APPLY:
        build_apply(builder, id);
        return builder->current;
    case KIND_MATMUL:
        builder_read(builder, id);
        builder_read(builder, builder_add_weight(builder, WEIGHT_MATRIX, &input, 1 / input.size));
        return add_output(builder, input, 1, 8);
    case KIND_RELU:
    case KIND_LEAKY:
        builder_read(builder, id);
        return add_output(builder, input, 0.7 * input.size, input.bound);
    case KIND_SOFTMAX:
        builder_read(builder, id);
        return add_output(builder, input, 2.0 / input.columns, 1);
    case KIND_CAST:
        builder_read(builder, id);
        input.dtype = builder_draw_dtype(builder);
        return add_output(builder, input, input.size, input.bound);
    default:
        return build_collective(builder, id, kind);
    }
}

/* By chance, a model goes on with what the one before it computed. */
static void begin_model(struct builder *builder, const struct op *op) {
    const bool goes_on =
        builder->current != NO_TENSOR && !op->is_call && builder_draw(builder, DRAW_CHAIN, 2) == 0;
    builder->model = op->model;
    builder->first = builder->program->tensor_count;
    builder->loaded = goes_on ? builder->current : NO_TENSOR;
    builder->current = builder->loaded;
}

static void build(struct builder *builder) {
    struct flow_program *program = builder->program;
    for (uint64_t number = 0; number < program->op_count && !builder->failed; number++) {
        const struct op op = graph_op(builder->workload, number);
        builder->number = number;
        builder->key = mix(program->key, number);
        if (number == 0 || op.model != builder->model)
            begin_model(builder, &op);
        program->ops[number].kind = kind_of(&op);
        if (builder->whole == NO_TENSOR)
            begin_split(builder);
        builder->current = build_op(builder, program->ops[number].kind);
    }
}

struct flow_program *program_build(const struct dssim_workload *workload) {
    struct flow_program *program = calloc(1, sizeof *program);
    if (program == NULL)
        return NULL;
    program->key = mix(workload->seed, DRAW_FLOW);
    program->op_count = dssim_ops_per_step(workload);
    program->ops = calloc(program->op_count, sizeof *program->ops);
    program->tensor_room = 64;
    program->tensors = malloc(program->tensor_room * sizeof *program->tensors);
    struct builder builder = {
        .workload = workload,
        .program = program,
        .current = NO_TENSOR,
        .loaded = NO_TENSOR,
        .whole = NO_TENSOR,
        .failed = program->ops == NULL || program->tensors == NULL,
    };
    build(&builder);
    if (!builder.failed && memory_plan(program))
        return program;
    program_free(program);
    return NULL;
}

void program_free(struct flow_program *program) {
    if (program == NULL)
        return;
    free(program->ops);
    free(program->tensors);
    free(program);
}

bool program_is_in_place(const struct flow_program *program, uint32_t input, uint32_t output) {
    const struct flow_tensor *one = &program->tensors[input], *other = &program->tensors[output];
    return one->base == input && other->base == output && one->address == other->address &&
           other->writer != one->writer;
}
