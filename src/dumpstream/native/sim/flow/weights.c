#include "flow/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workload/floats.h"

static size_t elements_of(const struct flow_tensor *weight) {
    return (size_t)weight->rows * weight->columns;
}

/* Room for the numbers of a weight. Not thread-local: a library with much of that leaves too little of
 * a small stack. */
static float *make_room(const struct flow_tensor *weight) {
    float *room = malloc(elements_of(weight) * sizeof *room);
    if (!room)
        abort();
    return room;
}

/* Numbers with a deviation of 1/50, none of them beyond 1/14. */
static void draw(const struct flow_tensor *weight, uint64_t key, float *out) {
    const struct tensor tensor = {.dtype = DTYPE_FLOAT32, .elements = elements_of(weight), .key = key};
    tensor_read(&tensor, 0, elements_of(weight) * sizeof *out, (uint8_t *)out);
}

/* Gives every column of a matrix its norm. */
static void scale_columns(const struct flow_tensor *weight, float *matrix) {
    float squares[MAX_COLUMNS] = {0};
    for (uint32_t i = 0; i < weight->rows; i++)
        for (uint32_t j = 0; j < weight->columns; j++)
            squares[j] += matrix[(size_t)i * weight->columns + j] * matrix[(size_t)i * weight->columns + j];
    for (uint32_t j = 0; j < weight->columns; j++)
        squares[j] = (float)weight->norm / sqrtf(squares[j] > 0 || squares[j] != squares[j] ? squares[j] : 1);
    for (uint32_t i = 0; i < weight->rows; i++)
        for (uint32_t j = 0; j < weight->columns; j++)
            matrix[(size_t)i * weight->columns + j] *= squares[j];
}

void weight_begin(const struct flow_tensor *weight, uint64_t key, uint8_t *bytes) {
    float *values = make_room(weight);
    draw(weight, key, values);
    if (weight->weight == WEIGHT_MATRIX)
        scale_columns(weight, values);
    for (size_t i = 0; weight->weight != WEIGHT_MATRIX && i < elements_of(weight); i++)
        values[i] = weight->weight == WEIGHT_GAIN ? 1 + 5 * values[i] : 2 * values[i];
    floats_write(weight->dtype, bytes, 0, elements_of(weight), values);
    free(values);
}

/* The mean of every column, brought between 0 and 2, so that it is a factor. */
static void measure(const struct operand *output, float *factors) {
    float row[MAX_COLUMNS];
    memset(factors, 0, output->columns * sizeof *factors);
    for (uint32_t i = 0; i < output->rows; i++) {
        floats_read(output->dtype, output->bytes, (size_t)i * output->columns, output->columns, row);
        for (uint32_t j = 0; j < output->columns; j++)
            factors[j] += row[j];
    }
    for (uint32_t j = 0; j < output->columns; j++) {
        const float mean = factors[j] / (float)output->rows;
        factors[j] = 1 + mean / (1 + fabsf(mean));
    }
}

/* About a tenth of the value changes in a step. */
static float trained(const struct flow_tensor *weight, float value, float change) {
    switch (weight->weight) {
    case WEIGHT_MATRIX:
        return value + change * (float)weight->norm * 0.5F;
    case WEIGHT_GAIN:
        return (value + 1 + 3 * change) * 0.5F;
    case WEIGHT_BIAS:
        break;
    }
    return (value + change) * 0.5F;
}

void weight_train(const struct flow_tensor *weight, uint64_t key, const struct operand *output,
                  uint8_t *bytes) {
    const size_t elements = elements_of(weight);
    float factors[MAX_COLUMNS];
    float *values = make_room(weight), *drawn = make_room(weight);
    measure(output, factors);
    draw(weight, key, drawn);
    floats_read(weight->dtype, bytes, 0, elements, values);
    for (size_t i = 0; i < elements; i++)
        values[i] = trained(weight, values[i], drawn[i] * factors[i % weight->columns]);
    if (weight->weight == WEIGHT_MATRIX)
        scale_columns(weight, values);
    floats_write(weight->dtype, bytes, 0, elements, values);
    free(drawn);
    free(values);
}
