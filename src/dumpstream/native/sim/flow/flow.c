#include "flow/flow.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device/thread.h"
#include "flow/stepping.h"

enum { KEPT_STEPS = 2 }; /* more, if more are in use */

struct flow_step {
    uint64_t step;
    _Atomic unsigned users; /* becomes larger only under the lock */
    uint8_t *bytes;
    struct flow_step *older; /* computed before it */
};

struct flow {
    unsigned owners; /* copies of the workload */
    struct flow_program *program;
    pthread_mutex_t lock; /* for all that follows */
    struct stepping stepping;
    struct flow_step *newest;
};

#define DEVICE_MEMORY UINT64_C(0x12c100000000)
#define MOST_BYTES (UINT64_C(4) << 30)

static const char *find_excess(const struct dssim_workload *workload) {
    const struct shape *shape = &workload->shape;
    uint64_t bytes = workload->tensor_bytes.most;
    if (shape->dims > 0) {
        bytes = 4;
        for (uint32_t i = 0; i < shape->dims; i++)
            bytes *= shape->dim[i];
        if (shape->dim[shape->dims - 1] > MAX_COLUMNS)
            return "with flow=on, the last dimension of shape must be at most 256";
    }
    return bytes > MOST_BYTES ? "with flow=on, a tensor must not have more than 4 GiB" : NULL;
}

static const char *prepare(struct flow *flow, const struct dssim_workload *workload) {
    static const char memory[] = "out of memory";
    if (flow == NULL)
        return memory;
    flow->owners = 1;
    pthread_mutex_init(&flow->lock, NULL);
    flow->program = program_build(workload);
    if (flow->program == NULL)
        return memory;
    if (flow->program->value_bytes > MOST_BYTES || flow->program->memory_bytes > MOST_BYTES / workload->ranks)
        return "with flow=on, the tensors of a step must not have more than 4 GiB: lower ops, tensor_bytes "
               "or ranks";
    return NULL;
}

const char *flow_open(struct dssim_workload *workload) {
    if (!workload->flow)
        return NULL;
    const char *wrong = find_excess(workload);
    if (wrong != NULL)
        return wrong;
    workload->values = calloc(1, sizeof *workload->values);
    wrong = prepare(workload->values, workload);
    if (wrong == NULL)
        wrong = stepping_init(&workload->values->stepping, workload, workload->values->program);
    if (wrong != NULL)
        flow_close(workload);
    return wrong;
}

void flow_share(const struct dssim_workload *workload) {
    if (workload->values == NULL)
        return;
    HOLD(&workload->values->lock);
    workload->values->owners++;
}

static void free_step(struct flow_step *step) {
    free(step->bytes);
    free(step);
}

static bool disown(struct flow *flow) {
    HOLD(&flow->lock);
    return --flow->owners == 0;
}

void flow_close(struct dssim_workload *workload) {
    struct flow *flow = workload->values;
    workload->values = NULL;
    if (flow == NULL || !disown(flow))
        return;
    for (struct flow_step *step = flow->newest, *older; step != NULL; step = older) {
        older = step->older;
        free_step(step);
    }
    stepping_free(&flow->stepping);
    program_free(flow->program);
    pthread_mutex_destroy(&flow->lock);
    free(flow);
}

void flow_after_fork(struct dssim_workload *workload) {
    struct flow *flow = workload->values;
    if (flow == NULL)
        return;
    pthread_mutex_init(&flow->lock, NULL);
    flow->stepping.next = NO_STEP; /* a thread that is gone may have been at work */
    flow->newest = NULL;
}

/* Frees the oldest steps that have no user, except the newest ones. The caller holds the lock. */
static void forget(struct flow *flow) {
    unsigned kept = 0;
    for (struct flow_step **place = &flow->newest; *place != NULL;) {
        struct flow_step *step = *place;
        if (atomic_load(&step->users) == 0 && kept >= KEPT_STEPS) {
            *place = step->older;
            free_step(step);
        } else {
            place = &step->older;
            kept++;
        }
    }
}

static struct flow_step *compute(struct flow *flow, uint64_t number) {
    struct flow_step *step = calloc(1, sizeof *step);
    if (step == NULL)
        return NULL;
    step->step = number;
    step->bytes = malloc(flow->program->value_bytes);
    if (step->bytes != NULL && stepping_reach(&flow->stepping, number, step->bytes)) {
        step->older = flow->newest;
        flow->newest = step;
        return step;
    }
    free_step(step);
    return NULL;
}

bool flow_acquire(const struct dssim_workload *workload, uint64_t number, const struct flow_step **values) {
    struct flow *flow = workload->values;
    *values = NULL;
    if (flow == NULL)
        return true;
    HOLD(&flow->lock);
    struct flow_step *step = flow->newest;
    while (step != NULL && step->step != number)
        step = step->older;
    if (step == NULL)
        step = compute(flow, number);
    if (step == NULL)
        return false;
    atomic_fetch_add(&step->users, 1);
    forget(flow);
    *values = step;
    return true;
}

void flow_release(const struct flow_step *values) {
    if (values != NULL)
        atomic_fetch_sub(&((struct flow_step *)values)->users, 1);
}

const struct flow_program *flow_program(const struct dssim_workload *workload) {
    return workload->values->program;
}

const struct flow_op *flow_op(const struct op *op) {
    return &op->workload->values->program->ops[op->number];
}

/* The output that has taken the place of the input, or NO_TENSOR. */
static uint32_t overwriter(const struct flow_program *program, const struct flow_op *op, uint32_t input) {
    for (uint32_t i = 0; i < op->outputs; i++)
        if (program_is_in_place(program, input, op->output[i]))
            return op->output[i];
    return NO_TENSOR;
}

struct tensor flow_tensor(const struct op *op, uint32_t place, bool before) {
    const struct flow_program *program = flow_program(op->workload);
    const struct flow_op *here = flow_op(op);
    const bool is_output = place >= here->inputs;
    const uint32_t id = is_output ? here->output[place - here->inputs] : here->input[place];
    const uint32_t other = is_output || before ? NO_TENSOR : overwriter(program, here, id);
    const struct flow_tensor *tensor = &program->tensors[id];
    const struct flow_tensor *base = &program->tensors[tensor->base];
    const struct flow_tensor *shown = other == NO_TENSOR ? base : &program->tensors[other];
    const uint64_t offset = tensor->offset + op->rank * tensor->stride;
    struct tensor out = {
        .dtype = tensor->dtype,
        .part = is_output ? PART_OUTPUT : PART_INPUT,
        .index = is_output ? place - here->inputs : place,
        .dims = tensor->dims,
        .elements = (uint64_t)tensor->rows * tensor->columns,
        .bytes = tensor->bytes,
        .address = DEVICE_MEMORY + base->address + offset,
        .given = op->values->bytes + shown->place + offset,
    };
    memcpy(out.dim, tensor->dim, sizeof tensor->dim);
    return out;
}

bool flow_overflows(const struct op *op) {
    double statistics[MEASURED_COUNT];
    for (uint32_t i = 0; i < op_outputs(op); i++) {
        const struct tensor output = flow_tensor(op, op_inputs(op) + i, false);
        tensor_measure(&output, statistics);
        if (statistics[NANS] + statistics[NEGATIVE_INFINITIES] + statistics[POSITIVE_INFINITIES] > 0)
            return true;
    }
    return false;
}
