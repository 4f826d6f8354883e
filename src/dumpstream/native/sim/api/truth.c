#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/sim.h"
#include "flow/flow.h"

_Static_assert((int)DSSIM_TENSORS == MAX_FLOW_INPUTS + MAX_FLOW_OUTPUTS, "operands");
_Static_assert((int)DSSIM_DIMS == MAX_SHAPE, "dimensions");

/* Bits of what is injected. */
enum { INJECTED_NAN = 1, INJECTED_OVERFLOW = 2, INJECTED_PERTURB = 4, INJECTED_SATURATE = 8 };

static void add_source(struct dssim_operand *operand, uint32_t kind, uint64_t op, uint32_t index) {
    operand->source[operand->sources].kind = kind;
    operand->source[operand->sources].op = op;
    operand->source[operand->sources].index = index;
    operand->sources++;
}

/* Adds those operators that wrote a half of a join which the tensor overlaps. */
static void add_halves(const struct flow_program *program, const struct flow_tensor *tensor, uint64_t offset,
                       uint64_t first_op, struct dssim_operand *operand) {
    for (uint64_t op = first_op; op < first_op + 2; op++) {
        const struct flow_tensor *half = &program->tensors[program->ops[op].output[0]];
        if (half->offset < offset + tensor->bytes && offset < half->offset + half->bytes)
            add_source(operand, DSSIM_OPERATOR, op, 0);
    }
}

static void find_sources(const struct flow_program *program, const struct flow_tensor *tensor, uint64_t rank,
                         struct dssim_operand *operand) {
    const struct flow_tensor *base = tensor->source == SOURCE_OP ? tensor : &program->tensors[tensor->base];
    if (base->source == SOURCE_JOIN)
        add_halves(program, tensor, tensor->offset + rank * tensor->stride, base->writer, operand);
    else if (base->source == SOURCE_OP)
        add_source(operand, DSSIM_OPERATOR, base->writer, base->index);
    else
        add_source(operand, base->source == SOURCE_WEIGHT ? DSSIM_WEIGHT : DSSIM_LOADER, base->writer, 0);
}

/* What is injected into weights, or into batches. */
static uint32_t injected_elsewhere(const struct op *op, int kind, uint64_t step) {
    const struct selectors *faults = op->workload->faults;
    uint32_t injected = 0;
    if (selected_of(&faults[FAULT_NAN], kind, op->rank, step) != NULL)
        injected |= INJECTED_NAN;
    if (selected_of(&faults[FAULT_OVERFLOW], kind, op->rank, step) != NULL)
        injected |= INJECTED_OVERFLOW;
    return injected;
}

/* What is injected into the first output. */
static uint32_t injected_here(const struct op *op, uint64_t step) {
    const uint32_t faults = op_faults(op, step);
    uint32_t injected = 0;
    if (faults & 1u << FAULT_NAN)
        injected |= INJECTED_NAN;
    if (faults & 1u << FAULT_OVERFLOW)
        injected |= INJECTED_OVERFLOW;
    if (op_selected(op, step, &op->workload->perturb, 0, NULL))
        injected |= INJECTED_PERTURB;
    if (faults & 1u << FAULT_SATURATE)
        injected |= INJECTED_SATURATE;
    return injected;
}

static void describe(const struct op *op, uint64_t step, uint32_t place, struct dssim_operand *operand) {
    const struct flow_program *program = flow_program(op->workload);
    const struct flow_op *here = flow_op(op);
    const bool is_output = place >= here->inputs;
    const uint32_t id = is_output ? here->output[place - here->inputs] : here->input[place];
    const struct tensor before = flow_dumped(op, place, true), after = flow_dumped(op, place, false);
    double statistics[MEASURED_COUNT];
    tensor_measure(&before, statistics);
    *operand = (struct dssim_operand){
        .address = before.address,
        .bytes = before.bytes,
        .nans = (uint64_t)statistics[NANS],
        .infinities = (uint64_t)(statistics[NEGATIVE_INFINITIES] + statistics[POSITIVE_INFINITIES]),
        .saturated = (uint64_t)statistics[SATURATED],
        .dtype = dtype_facts[before.dtype].number,
        .dims = before.dims,
        .in_place = before.given != after.given,
    };
    memcpy(operand->dim, before.dim, sizeof operand->dim);
    find_sources(program, &program->tensors[id], op->rank, operand);
    const struct flow_tensor *tensor = &program->tensors[id];
    if (tensor->source == SOURCE_WEIGHT)
        operand->injected = injected_elsewhere(op, SELECT_WEIGHTS, step);
    else if (tensor->source == SOURCE_LOADER && dtype_facts[tensor->dtype].floating)
        operand->injected = injected_elsewhere(op, SELECT_LOADER, step);
    else if (place == here->inputs)
        operand->injected = injected_here(op, step);
    if (here->kind == KIND_DATA)
        operand->injected |= injected_elsewhere(op, SELECT_LOADER, step);
}

int dssim_execution_describe(const struct dssim_workload *workload, uint64_t step, uint64_t number,
                             struct dssim_execution *execution) {
    struct op op = graph_op(workload, number);
    if (!workload->flow)
        return -EINVAL;
    if (!flow_acquire(workload, step, &op.values))
        return -ENOMEM;
    *execution = (struct dssim_execution){
        .model = op.model,
        .task = op_task(&op),
        .stream = op_stream(&op),
        .is_call = op.is_call,
        .is_collective = op_is_collective(&op),
        .is_undumped = op_is_undumped(&op),
        .inputs = op_inputs(&op),
        .outputs = op_outputs(&op),
    };
    snprintf(execution->name, sizeof execution->name, "%s", op.name);
    snprintf(execution->type, sizeof execution->type, "%s", op.type);
    for (uint32_t place = 0; place < execution->inputs + execution->outputs; place++)
        describe(&op, step, place, &execution->operand[place]);
    flow_release(op.values);
    return 0;
}
