#include "flow/builder.h"

#include <stdlib.h>
#include <string.h>

#include "workload/random.h"

#define LEAST_SIZE 0x1p-8

enum { MEMORABLE = 64 }; /* an operator reads one of so many tensors that were made last */

uint64_t builder_draw(const struct builder *builder, uint64_t what, uint64_t bound) {
    return below(mix(builder->key, what), bound);
}

/* Gives a tensor the workload's shape if it has that many elements, else two dimensions, or one. */
static void set_dims(struct flow_tensor *tensor, const struct shape *shape) {
    uint64_t elements = shape->dims > 0;
    for (uint32_t i = 0; i < shape->dims; i++)
        elements *= shape->dim[i];
    if (elements == (uint64_t)tensor->rows * tensor->columns && tensor->columns > 1 &&
        shape->dim[shape->dims - 1] == tensor->columns) {
        tensor->dims = shape->dims;
        memcpy(tensor->dim, shape->dim, sizeof tensor->dim);
    } else if (tensor->source == SOURCE_WEIGHT && tensor->rows == 1) {
        tensor->dims = 1;
        tensor->dim[0] = tensor->columns;
    } else {
        tensor->dims = 2;
        tensor->dim[0] = tensor->rows;
        tensor->dim[1] = tensor->columns;
    }
}

uint32_t builder_add(struct builder *builder, enum source source, enum dtype dtype, uint32_t rows,
                     uint32_t columns) {
    struct flow_program *program = builder->program;
    if (program->tensor_count == program->tensor_room) {
        uint32_t room = 2 * program->tensor_room;
        struct flow_tensor *tensors = realloc(program->tensors, room * sizeof *tensors);
        if (tensors == NULL) {
            builder->failed = true;
            return 0;
        }
        program->tensors = tensors;
        program->tensor_room = room;
    }
    struct flow_tensor *tensor = &program->tensors[program->tensor_count];
    *tensor = (struct flow_tensor){
        .source = source,
        .dtype = dtype,
        .rows = rows,
        .columns = columns,
        .bytes = (uint64_t)rows * columns * dtype_facts[dtype].bytes,
        .writer = builder->number,
        .base = program->tensor_count,
        .last = builder->number,
        .size = 1,
        .bound = 8,
    };
    set_dims(tensor, &builder->workload->shape);
    return program->tensor_count++;
}

uint32_t builder_add_part(struct builder *builder, enum source source, uint32_t base, uint32_t rows,
                          uint64_t offset) {
    const struct flow_tensor whole = *tensor_of(builder, base);
    uint32_t id = builder_add(builder, source, whole.dtype, rows, whole.columns);
    struct flow_tensor *part = tensor_of(builder, id);
    part->base = whole.base;
    part->offset = whole.offset + offset;
    part->size = whole.size;
    part->bound = whole.bound;
    return id;
}

void builder_read(struct builder *builder, uint32_t id) {
    struct flow_op *op = &builder->program->ops[builder->number];
    op->input[op->inputs++] = id;
    tensor_of(builder, id)->uses++;
    tensor_of(builder, tensor_of(builder, id)->base)->last = builder->number;
    if (tensor_of(builder, id)->source == SOURCE_SLICE)
        tensor_of(builder, tensor_of(builder, id)->base)->uses++;
}

struct flow_tensor *builder_write(struct builder *builder, uint32_t id, double size, double bound) {
    struct flow_op *op = &builder->program->ops[builder->number];
    struct flow_tensor *tensor = tensor_of(builder, id);
    tensor->index = op->outputs;
    tensor->size = size;
    tensor->bound = bound;
    op->output[op->outputs++] = id;
    return tensor;
}

enum dtype builder_draw_dtype(const struct builder *builder) {
    const struct dtypes *dtypes = &builder->workload->dtypes;
    enum dtype floats[MAX_DTYPES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < dtypes->count; i++)
        if (dtype_facts[dtypes->dtype[i]].floating)
            floats[count++] = dtypes->dtype[i];
    return count > 0 ? floats[builder_draw(builder, DRAW_DTYPE, count)] : DTYPE_FLOAT32;
}

uint32_t builder_add_batch(struct builder *builder, enum source source) {
    const struct dssim_workload *workload = builder->workload;
    const struct shape *shape = &workload->shape;
    const enum dtype dtype = builder_draw_dtype(builder);
    uint64_t rows = 1, columns = 16 * (1 + builder_draw(builder, DRAW_COLUMNS, 4));
    if (shape->dims > 0) {
        columns = shape->dim[shape->dims - 1];
        for (uint32_t i = 0; i + 1 < shape->dims; i++)
            rows *= shape->dim[i];
    } else {
        uint64_t span = workload->tensor_bytes.most - workload->tensor_bytes.least + 1;
        uint64_t bytes = workload->tensor_bytes.least + builder_draw(builder, DRAW_BYTES, span);
        uint64_t elements = bytes / dtype_facts[dtype].bytes;
        columns = elements < columns ? elements + !elements : columns;
        rows = elements < columns ? 1 : elements / columns;
    }
    uint32_t id = builder_add(builder, source, dtype, (uint32_t)rows, (uint32_t)columns);
    builder->rows = (uint32_t)rows;
    tensor_of(builder, id)->size = 0.7;
    tensor_of(builder, id)->bound = 4;
    return id;
}

uint32_t builder_load(struct builder *builder) {
    if (builder->loaded == NO_TENSOR)
        builder->loaded = builder_add_batch(builder, SOURCE_LOADER);
    return builder->loaded;
}

uint32_t builder_add_weight(struct builder *builder, enum weight weight, const struct flow_tensor *like,
                            double norm) {
    uint32_t rows = weight == WEIGHT_MATRIX ? like->columns : 1;
    uint32_t id = builder_add(builder, SOURCE_WEIGHT, like->dtype, rows, like->columns);
    tensor_of(builder, id)->weight = weight;
    tensor_of(builder, id)->norm = norm;
    tensor_of(builder, id)->bound = weight == WEIGHT_GAIN ? 1.8 : 0.4;
    return id;
}

/* The oldest tensor of the model that an operator still reads, unless it is the batch. */
static uint32_t oldest(const struct builder *builder) {
    uint32_t count = builder->program->tensor_count;
    return count - builder->first > MEMORABLE ? count - MEMORABLE : builder->first;
}

static bool is_activation(const struct flow_tensor *tensor, uint32_t id) {
    if (tensor->source == SOURCE_JOIN)
        return tensor->is_joined;
    return tensor->source == SOURCE_OP && tensor->base == id && tensor->index == 0 && !tensor->is_weight;
}

uint32_t builder_choose_input(struct builder *builder) {
    if (builder->whole != NO_TENSOR) {
        struct flow_tensor *whole = tensor_of(builder, builder->whole);
        uint64_t offset = builder->half * (whole->bytes / 2);
        return builder_add_part(builder, SOURCE_SLICE, builder->whole, whole->rows / 2, offset);
    }
    if (builder->current == NO_TENSOR)
        return builder_load(builder);
    uint32_t first = oldest(builder), count = builder->program->tensor_count;
    if (builder_draw(builder, DRAW_INPUT, 6) == 0 && first < count) {
        uint32_t id = first + (uint32_t)builder_draw(builder, DRAW_INPUT + (1 << 16), count - first);
        if (is_activation(tensor_of(builder, id), id))
            return id;
    }
    return builder->current;
}

uint32_t builder_choose_operand(const struct builder *builder, uint32_t id, bool is_product) {
    const struct flow_tensor *first = tensor_of(builder, id);
    uint32_t found = NO_TENSOR, count = builder->program->tensor_count, seen = 0;
    if (builder->whole != NO_TENSOR || builder_draw(builder, DRAW_OPERAND, 4) == 0)
        return NO_TENSOR;
    for (uint32_t i = oldest(builder); i < count; i++) {
        const struct flow_tensor *tensor = tensor_of(builder, i);
        double bound = is_product ? first->bound * tensor->bound : first->bound + tensor->bound;
        if (i == id || !is_activation(tensor, i) || tensor->dtype != first->dtype ||
            tensor->rows != first->rows || tensor->columns != first->columns ||
            bound > most_bound(first->dtype) || (is_product && first->size * tensor->size < LEAST_SIZE))
            continue;
        bool better = found == NO_TENSOR || tensor->uses == 0 || tensor_of(builder, found)->uses > 0;
        if (better && below(mix(builder->key, DRAW_OPERAND + ((uint64_t)i << 16)), ++seen) == 0)
            found = i;
    }
    return found;
}

uint32_t builder_choose_weight(struct builder *builder, const struct flow_tensor *gradient) {
    for (uint32_t i = builder->program->tensor_count; i-- > oldest(builder);) {
        const struct flow_tensor *tensor = tensor_of(builder, i);
        if (tensor->source == SOURCE_WEIGHT && !tensor->is_trained && tensor->dtype == gradient->dtype &&
            tensor->columns == gradient->columns && tensor->rows <= gradient->rows)
            return i;
    }
    return builder_add_weight(builder, WEIGHT_BIAS, gradient, 0);
}
