#include "flow/kernels.h"

#include <math.h>
#include <stdlib.h>

#include "workload/floats.h"

#define EPSILON 1e-5F

static void read_row(const struct operand *operand, uint32_t row, float *out) {
    floats_read(operand->dtype, operand->bytes, (size_t)row * operand->columns, operand->columns, out);
}

static void write_row(const struct operand *operand, uint32_t row, const float *values) {
    floats_write(operand->dtype, operand->bytes, (size_t)row * operand->columns, operand->columns, values);
}

/* exp(x) for x <= 0, to about seven digits; NaN stays NaN. */
static float exponential(float x) {
    const float scaled = x * 1.44269504F;
    if (!(scaled > -126))
        return scaled != scaled ? x : 0;
    const int32_t whole = (int32_t)(scaled - 0.5F);
    const float rest = (scaled - (float)whole) * 0.693147181F;
    float sum = 1 + rest / 7;
    for (int i = 6; i > 0; i--)
        sum = 1 + rest * sum / (float)i;
    return sum * bits_float((uint32_t)(whole + 127) << 23);
}

/* The weights lie in `matrix`, row by row. */
static void multiply_row(const float *restrict row, const float *restrict matrix, uint32_t columns,
                         float *restrict out) {
    for (uint32_t j = 0; j < columns; j++)
        out[j] = 0;
    for (uint32_t k = 0; k < columns; k++)
        for (uint32_t j = 0; j < columns; j++)
            out[j] += row[k] * matrix[(size_t)k * columns + j];
}

static void multiply(const struct operand *in, const struct operand *out) {
    const size_t elements = (size_t)in[1].rows * in[1].columns;
    float *matrix = malloc(elements * sizeof *matrix);
    float row[MAX_COLUMNS], product[MAX_COLUMNS];
    if (!matrix)
        abort();
    floats_read(in[1].dtype, in[1].bytes, 0, elements, matrix);
    for (uint32_t i = 0; i < out->rows; i++) {
        read_row(&in[0], i, row);
        multiply_row(row, matrix, out->columns, product);
        write_row(out, i, product);
    }
    free(matrix);
}

/* The second operand has as many rows, or one for all. */
static void combine(enum flow_kind kind, const struct operand *in, const struct operand *out) {
    float row[MAX_COLUMNS], other[MAX_COLUMNS];
    for (uint32_t i = 0; i < out->rows; i++) {
        read_row(&in[0], i, row);
        if (i == 0 || in[1].rows > 1)
            read_row(&in[1], i, other);
        if (kind == KIND_ADD)
            for (uint32_t j = 0; j < out->columns; j++)
                row[j] += other[j];
        else
            for (uint32_t j = 0; j < out->columns; j++)
                row[j] *= other[j];
        write_row(out, i, row);
    }
}

/* Keeps a tenth of what is negative. */
static void leak(const struct operand *in, const struct operand *out) {
    float row[MAX_COLUMNS];
    for (uint32_t i = 0; i < out->rows; i++) {
        read_row(in, i, row);
        for (uint32_t j = 0; j < out->columns; j++)
            row[j] = row[j] < 0 ? row[j] * 0.1F : row[j];
        write_row(out, i, row);
    }
}

/* Drops what is negative; NaN is not, and stays. */
static void relu(const struct operand *in, const struct operand *out) {
    float row[MAX_COLUMNS];
    for (uint32_t i = 0; i < out->rows; i++) {
        read_row(in, i, row);
        for (uint32_t j = 0; j < out->columns; j++)
            row[j] = row[j] < 0 ? 0 : row[j];
        write_row(out, i, row);
    }
}

static void normalise(const struct operand *in, const struct operand *out) {
    float row[MAX_COLUMNS], gain[MAX_COLUMNS], bias[MAX_COLUMNS];
    const uint32_t columns = out->columns;
    read_row(&in[1], 0, gain);
    read_row(&in[2], 0, bias);
    for (uint32_t i = 0; i < out->rows; i++) {
        float sum = 0, squares = 0;
        read_row(&in[0], i, row);
        for (uint32_t j = 0; j < columns; j++)
            sum += row[j];
        const float mean = sum / (float)columns;
        for (uint32_t j = 0; j < columns; j++) {
            row[j] -= mean;
            squares += row[j] * row[j];
        }
        const float scale = 1 / sqrtf(squares / (float)columns + EPSILON);
        for (uint32_t j = 0; j < columns; j++)
            row[j] = row[j] * scale * gain[j] + bias[j];
        write_row(&out[0], i, row);
        write_row(&out[1], i, &mean);
        write_row(&out[2], i, &scale);
    }
}

static void softmax(const struct operand *in, const struct operand *out) {
    float row[MAX_COLUMNS];
    const uint32_t columns = out->columns;
    for (uint32_t i = 0; i < out->rows; i++) {
        float most = -INFINITY, sum = 0;
        read_row(in, i, row);
        for (uint32_t j = 0; j < columns; j++)
            most = row[j] > most ? row[j] : most;
        for (uint32_t j = 0; j < columns; j++)
            sum += row[j] = exponential(row[j] - most);
        for (uint32_t j = 0; j < columns; j++)
            row[j] /= sum;
        write_row(out, i, row);
    }
}

static void gather(const struct operand *in, const struct operand *out) {
    const size_t width = in[0].columns * (size_t)dtype_facts[in[0].dtype].bytes;
    const int32_t *narrow = (const int32_t *)(const void *)in[1].bytes;
    const int64_t *wide = (const int64_t *)(const void *)in[1].bytes;
    for (uint32_t i = 0; i < out->rows; i++) {
        size_t row = in[1].dtype == DTYPE_INT64 ? (size_t)wide[i] : (size_t)narrow[i];
        memcpy(out->bytes + i * width, in[0].bytes + row * width, width);
    }
}

static void cast(const struct operand *in, const struct operand *out) {
    float row[MAX_COLUMNS];
    for (uint32_t i = 0; i < out->rows; i++) {
        read_row(in, i, row);
        write_row(out, i, row);
    }
}

/* A step of gradient descent that keeps the weight within bounds. */
static void apply(const struct operand *in, const struct operand *out) {
    float weight[MAX_COLUMNS], gradient[MAX_COLUMNS];
    for (uint32_t i = 0; i < out->rows; i++) {
        read_row(&in[0], i, weight);
        read_row(&in[1], i, gradient);
        for (uint32_t j = 0; j < out->columns; j++)
            weight[j] -= weight[j] * gradient[j] / (1 + fabsf(gradient[j])) * 0.01F;
        write_row(out, i, weight);
    }
}

void kernel_run(enum flow_kind kind, const struct operand *inputs, const struct operand *outputs) {
    switch (kind) {
    case KIND_MATMUL:
        multiply(inputs, outputs);
        break;
    case KIND_ADD:
    case KIND_MUL:
        combine(kind, inputs, outputs);
        break;
    case KIND_RELU:
        relu(inputs, outputs);
        break;
    case KIND_LAYER_NORM:
        normalise(inputs, outputs);
        break;
    case KIND_SOFTMAX:
        softmax(inputs, outputs);
        break;
    case KIND_GATHER:
        gather(inputs, outputs);
        break;
    case KIND_CAST:
        cast(inputs, outputs);
        break;
    case KIND_APPLY:
        apply(inputs, outputs);
        break;
    default:
        leak(inputs, outputs);
    }
}

/* The sum over all ranks, in the order of the ranks, of all rows. */
static void add_up(uint32_t ranks, const struct operand *inputs, const struct operand *sum) {
    float row[MAX_COLUMNS], total[MAX_COLUMNS];
    for (uint32_t i = 0; i < sum->rows; i++) {
        read_row(&inputs[0], i, total);
        for (uint32_t rank = 1; rank < ranks; rank++) {
            read_row(&inputs[rank], i, row);
            for (uint32_t j = 0; j < sum->columns; j++)
                total[j] += row[j];
        }
        write_row(sum, i, total);
    }
}

static size_t bytes_of(const struct operand *operand) {
    return (size_t)operand->rows * operand->columns * dtype_facts[operand->dtype].bytes;
}

/* What all ranks together bring, in `all`. */
static void collect(enum flow_kind kind, uint32_t ranks, const struct operand *inputs, uint8_t *all) {
    const size_t bytes = bytes_of(inputs);
    struct operand sum = inputs[0];
    sum.bytes = all;
    if (kind == KIND_ALL_REDUCE || kind == KIND_REDUCE_SCATTER)
        add_up(ranks, inputs, &sum);
    else
        for (uint32_t rank = 0; rank < ranks; rank++)
            memcpy(all + rank * bytes, inputs[rank].bytes, bytes);
}

bool kernel_exchange(enum flow_kind kind, uint32_t ranks, const struct operand *inputs,
                     const struct operand *outputs) {
    const size_t bytes = bytes_of(outputs);
    uint8_t *all = malloc(ranks * bytes_of(inputs));
    if (all == NULL)
        return false;
    collect(kind, ranks, inputs, all);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        size_t from = 0;
        if (kind == KIND_REDUCE_SCATTER)
            from = rank * bytes % bytes_of(inputs); /* with fewer rows than ranks, some get the same */
        else if (kind == KIND_SHIFT)
            from = (rank + ranks - 1) % ranks * bytes;
        memcpy(outputs[rank].bytes, all + from, bytes);
    }
    free(all);
    return true;
}
