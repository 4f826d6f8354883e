#include "flow/stepping.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "flow/kernels.h"
#include "flow/weights.h"
#include "workload/floats.h"
#include "workload/graph.h"
#include "workload/random.h"

enum { SPACING = 1024 }; /* of bad values: one in so many, at a drawn place */

/* One step while it runs. */
struct running {
    struct stepping *stepping;
    const struct flow_program *program;
    uint64_t step;
    uint8_t *values; /* of the workload's own rank; NULL if they are not asked for */
};

const char *stepping_init(struct stepping *stepping, const struct dssim_workload *workload,
                          const struct flow_program *program) {
    const bool is_alone = !program->exchanges;
    *stepping = (struct stepping){
        .workload = malloc(sizeof *workload),
        .program = program,
        .first = is_alone ? workload->rank : 0,
        .end = is_alone ? workload->rank + 1 : workload->ranks,
        .next = NO_STEP,
    };
    if (stepping->workload == NULL)
        return "out of memory";
    *stepping->workload = *workload;
    return NULL;
}

void stepping_free(struct stepping *stepping) {
    free(stepping->workload);
    free(stepping->memory);
}

static uint8_t *memory_of(const struct stepping *stepping, uint64_t rank) {
    return stepping->memory + (rank - stepping->first) * stepping->program->memory_bytes;
}

static uint8_t *locate(const struct running *run, uint64_t rank, uint32_t id) {
    const struct flow_tensor *tensor = &run->program->tensors[id];
    const struct flow_tensor *base = &run->program->tensors[tensor->base];
    const uint64_t offset = tensor->offset + rank * tensor->stride;
    if (run->values != NULL && rank == run->stepping->workload->rank)
        return run->values + base->place + offset;
    return memory_of(run->stepping, rank) + base->address + offset;
}

static struct operand operand_of(const struct running *run, uint64_t rank, uint32_t id) {
    const struct flow_tensor *tensor = &run->program->tensors[id];
    return (struct operand){tensor->dtype, tensor->rows, tensor->columns, locate(run, rank, id)};
}

/* The key of what is drawn for a tensor on a rank. */
static uint64_t key_of(const struct flow_program *program, uint64_t what, uint64_t rank, uint32_t id,
                       uint64_t step) {
    return mix(mix(mix(mix(program->key, what), rank), id), step);
}

static struct op op_of(const struct running *run, uint64_t number, uint64_t rank) {
    struct op op = graph_op(run->stepping->workload, number);
    op.rank = rank;
    return op;
}

static void strew(const struct operand *operand, uint64_t key, float value) {
    const uint64_t elements = (uint64_t)operand->rows * operand->columns;
    for (uint64_t first = 0; first < elements; first += SPACING) {
        uint64_t left = elements - first;
        uint64_t at = first + below(mix(key, first), left < SPACING ? left : SPACING);
        floats_write(operand->dtype, operand->bytes, at, 1, &value);
    }
}

static void scale(const struct operand *operand, double factor) {
    float row[MAX_COLUMNS];
    for (uint32_t i = 0; i < operand->rows; i++) {
        const size_t first = (size_t)i * operand->columns;
        floats_read(operand->dtype, operand->bytes, first, operand->columns, row);
        for (uint32_t j = 0; j < operand->columns; j++)
            row[j] = (float)(row[j] * factor);
        floats_write(operand->dtype, operand->bytes, first, operand->columns, row);
    }
}

static double largest(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_FLOAT16:
        return 65504;
    case DTYPE_BFLOAT16:
        return 0x1.fep127;
    case DTYPE_FLOAT8_E4M3FN:
        return 448;
    case DTYPE_FLOAT8_E5M2:
        return 57344;
    default:
        return 0x1.fffffep127;
    }
}

/* Makes all values far too large, and holds them at the largest, as a device does in saturation mode. */
static void saturate(const struct operand *operand) {
    const double most = largest(operand->dtype);
    float row[MAX_COLUMNS];
    for (uint32_t i = 0; i < operand->rows; i++) {
        const size_t first = (size_t)i * operand->columns;
        floats_read(operand->dtype, operand->bytes, first, operand->columns, row);
        for (uint32_t j = 0; j < operand->columns; j++)
            if (row[j] != 0 && !isnan(row[j]))
                row[j] = (float)copysign(most, row[j]);
        floats_write(operand->dtype, operand->bytes, first, operand->columns, row);
    }
}

/* Spoils the first output as the faults of the operator say. */
static void inject(const struct running *run, uint64_t number, uint64_t rank) {
    const struct dssim_workload *workload = run->stepping->workload;
    const struct op op = op_of(run, number, rank);
    const uint32_t id = run->program->ops[number].output[0];
    const struct operand output = operand_of(run, rank, id);
    const uint32_t faults = op_faults(&op, run->step);
    const uint64_t key = key_of(run->program, DRAW_INJECTED, rank, id, run->step);
    const struct selector *perturbed;
    if (op_selected(&op, run->step, &workload->perturb, 0, &perturbed))
        scale(&output, 1 + perturbed->relative);
    if (faults & 1u << FAULT_SATURATE)
        saturate(&output);
    if (faults & 1u << FAULT_OVERFLOW)
        strew(&output, mix(key, FAULT_OVERFLOW), INFINITY);
    if (faults & 1u << FAULT_NAN)
        strew(&output, mix(key, FAULT_NAN), NAN);
}

/* Spoils what is not the output of an operator. */
static void inject_elsewhere(const struct running *run, int kind, uint64_t rank, uint32_t id) {
    const struct selectors *faults = run->stepping->workload->faults;
    const struct operand spoilt = operand_of(run, rank, id);
    const uint64_t key = key_of(run->program, DRAW_INJECTED, rank, id, run->step);
    if (selected_of(&faults[FAULT_OVERFLOW], kind, rank, run->step) != NULL)
        strew(&spoilt, mix(key, FAULT_OVERFLOW), INFINITY);
    if (selected_of(&faults[FAULT_NAN], kind, rank, run->step) != NULL)
        strew(&spoilt, mix(key, FAULT_NAN), NAN);
}

static void load_batch(const struct running *run, uint64_t rank, uint32_t id) {
    const struct flow_tensor *batch = &run->program->tensors[id];
    const struct tensor drawn = {
        .dtype = batch->dtype,
        .rectified = true,
        .elements = (uint64_t)batch->rows * batch->columns,
        .key = key_of(run->program, DRAW_LOADER, rank, id, run->step),
    };
    tensor_read(&drawn, 0, batch->bytes, locate(run, rank, id));
    inject_elsewhere(run, SELECT_LOADER, rank, id);
}

static void load_indices(const struct running *run, uint64_t rank, uint32_t id) {
    const struct flow_tensor *indices = &run->program->tensors[id];
    const uint64_t key = key_of(run->program, DRAW_LOADER, rank, id, run->step);
    void *out = locate(run, rank, id);
    for (uint32_t i = 0; i < indices->rows; i++) {
        uint64_t row = below(mix(key, i), (uint64_t)indices->bound);
        if (indices->dtype == DTYPE_INT64)
            ((int64_t *)out)[i] = (int64_t)row;
        else
            ((int32_t *)out)[i] = (int32_t)row;
    }
}

/* Before the first step a weight is drawn. What a step asks for is copied: the weights change while it runs.
 */
static void load_weight(const struct running *run, uint64_t rank, uint32_t id) {
    const struct flow_tensor *weight = &run->program->tensors[id];
    uint8_t *kept = memory_of(run->stepping, rank) + weight->address, *shown = locate(run, rank, id);
    if (run->step == 0)
        weight_begin(weight, key_of(run->program, DRAW_WEIGHT, rank, id, 0), kept);
    if (shown != kept)
        memcpy(shown, kept, weight->bytes);
    inject_elsewhere(run, SELECT_WEIGHTS, rank, id);
    if (shown != kept)
        memcpy(kept, shown, weight->bytes);
}

static void load(const struct running *run, uint64_t rank) {
    for (uint32_t id = 0; id < run->program->tensor_count; id++) {
        const struct flow_tensor *tensor = &run->program->tensors[id];
        if (tensor->source == SOURCE_WEIGHT)
            load_weight(run, rank, id);
        else if (tensor->source == SOURCE_LOADER && dtype_facts[tensor->dtype].floating)
            load_batch(run, rank, id);
        else if (tensor->source == SOURCE_LOADER)
            load_indices(run, rank, id);
    }
}

/* Changes the operator's own weights for the next step, or keeps what the operator made of one. */
static void train(const struct running *run, uint64_t number, uint64_t rank) {
    const struct flow_op *op = &run->program->ops[number];
    const struct operand output = operand_of(run, rank, op->output[0]);
    for (uint32_t i = 0; i < op->inputs; i++) {
        const struct flow_tensor *weight = &run->program->tensors[op->input[i]];
        if (weight->source != SOURCE_WEIGHT)
            continue;
        uint8_t *kept = memory_of(run->stepping, rank) + weight->address;
        const uint64_t key = key_of(run->program, DRAW_WEIGHT, rank, op->input[i], run->step + 1);
        if (op->kind == KIND_APPLY)
            memmove(kept, output.bytes, weight->bytes);
        else if (!weight->is_trained)
            weight_train(weight, key, &output, kept);
    }
}

static void run_alone(const struct running *run, uint64_t number, uint64_t rank) {
    const struct flow_op *op = &run->program->ops[number];
    struct operand inputs[MAX_FLOW_INPUTS], outputs[MAX_FLOW_OUTPUTS];
    for (uint32_t i = 0; i < op->inputs; i++)
        inputs[i] = operand_of(run, rank, op->input[i]);
    for (uint32_t i = 0; i < op->outputs; i++)
        outputs[i] = operand_of(run, rank, op->output[i]);
    if (op->kind == KIND_DATA)
        load_batch(run, rank, op->output[0]);
    else
        kernel_run(op->kind, inputs, outputs);
}

static bool run_together(const struct running *run, uint64_t number) {
    const struct flow_op *op = &run->program->ops[number];
    struct operand inputs[MAX_DEVICES], outputs[MAX_DEVICES];
    const uint64_t ranks = run->stepping->workload->ranks;
    for (uint64_t rank = 0; rank < ranks; rank++) {
        inputs[rank] = operand_of(run, rank, op->input[0]);
        outputs[rank] = operand_of(run, rank, op->output[0]);
    }
    return kernel_exchange(op->kind, (uint32_t)ranks, inputs, outputs);
}

static bool run_op(const struct running *run, uint64_t number) {
    const struct stepping *stepping = run->stepping;
    if (kind_is_collective(run->program->ops[number].kind) && !run_together(run, number))
        return false;
    for (uint64_t rank = stepping->first; rank < stepping->end; rank++) {
        if (!kind_is_collective(run->program->ops[number].kind))
            run_alone(run, number, rank);
        inject(run, number, rank);
        train(run, number, rank);
    }
    return true;
}

static bool run_step(struct stepping *stepping, uint8_t *values) {
    const struct running run = {stepping, stepping->program, stepping->next, values};
    for (uint64_t rank = stepping->first; rank < stepping->end; rank++)
        load(&run, rank);
    for (uint64_t number = 0; number < stepping->program->op_count; number++)
        if (!run_op(&run, number))
            return false;
    stepping->next++;
    return true;
}

bool stepping_reach(struct stepping *stepping, uint64_t step, uint8_t *values) {
    const uint64_t ranks = stepping->end - stepping->first;
    if (stepping->memory == NULL)
        stepping->memory = calloc(ranks, stepping->program->memory_bytes);
    if (stepping->memory == NULL)
        return false;
    if (stepping->next > step) /* also if it is NO_STEP */
        stepping->next = 0;
    bool reached = true;
    while (reached && stepping->next <= step)
        reached = run_step(stepping, stepping->next == step ? values : NULL);
    if (!reached)
        stepping->next = NO_STEP;
    return reached;
}
