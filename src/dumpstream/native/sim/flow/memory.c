#include "flow/memory.h"

#include <stdlib.h>

#include "workload/random.h"

/* A free stretch of memory; they are sorted by address, and no two of them touch. */
struct hole {
    uint64_t begin, end;
};

struct memory {
    struct hole *holes;
    size_t count;
    uint64_t end; /* of all that was ever given out */
};

static uint64_t aligned(uint64_t bytes) {
    return (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
}

static void remove_hole(struct memory *memory, size_t i) {
    memory->count--;
    for (; i < memory->count; i++)
        memory->holes[i] = memory->holes[i + 1];
}

/* Takes the first hole that is large enough, or new memory. */
static uint64_t take(struct memory *memory, uint64_t bytes) {
    for (size_t i = 0; i < memory->count; i++) {
        struct hole *hole = &memory->holes[i];
        if (hole->end - hole->begin < bytes)
            continue;
        uint64_t begin = hole->begin;
        hole->begin += bytes;
        if (hole->begin == hole->end)
            remove_hole(memory, i);
        return begin;
    }
    memory->end += bytes;
    return memory->end - bytes;
}

static void give(struct memory *memory, uint64_t begin, uint64_t bytes) {
    size_t i = memory->count;
    while (i > 0 && memory->holes[i - 1].begin > begin) {
        memory->holes[i] = memory->holes[i - 1];
        i--;
    }
    memory->holes[i] = (struct hole){begin, begin + bytes};
    memory->count++;
    if (i + 1 < memory->count && memory->holes[i + 1].begin == begin + bytes) {
        memory->holes[i].end = memory->holes[i + 1].end;
        remove_hole(memory, i + 1);
    }
    if (i > 0 && memory->holes[i - 1].end == begin) {
        memory->holes[i - 1].end = memory->holes[i].end;
        remove_hole(memory, i);
    }
}

static bool can_work_in_place(enum flow_kind kind) {
    switch (kind) {
    case KIND_ADD:
    case KIND_MUL:
    case KIND_RELU:
    case KIND_LEAKY:
    case KIND_LAYER_NORM:
    case KIND_SOFTMAX:
    case KIND_ALL_REDUCE:
    case KIND_BROADCAST:
        return true;
    default:
        return false;
    }
}

/* Whether the first output may, and by chance does, take the place of the first input. */
static bool works_in_place(const struct flow_program *program, uint64_t number) {
    const struct flow_op *op = &program->ops[number];
    const struct flow_tensor *input = &program->tensors[op->input[0]];
    const struct flow_tensor *output = &program->tensors[op->output[0]];
    if (!can_work_in_place(op->kind) || input->source != SOURCE_OP || input->base != op->input[0] ||
        output->base != op->output[0])
        return false;
    return input->last == number && input->bytes == output->bytes && input->dtype == output->dtype &&
           mix(mix(program->key, number), DRAW_IN_PLACE) % 2 == 0;
}

static void place_outputs(struct flow_program *program, struct memory *memory, uint64_t number) {
    const struct flow_op *op = &program->ops[number];
    for (uint32_t i = 0; i < op->outputs; i++) {
        struct flow_tensor *part = &program->tensors[op->output[i]];
        struct flow_tensor *base = &program->tensors[part->base];
        if (op->kind == KIND_APPLY) {
            base->address = program->tensors[op->input[0]].address;
        } else if (i == 0 && works_in_place(program, number)) {
            struct flow_tensor *input = &program->tensors[op->input[0]];
            base->address = input->address;
            input->is_overwritten = true;
        } else if (part->offset == 0) {
            base->address = take(memory, aligned(base->bytes));
        }
    }
}

static bool is_kept(const struct flow_program *program, const struct flow_tensor *tensor) {
    return tensor->source == SOURCE_WEIGHT || tensor->source == SOURCE_LOADER || tensor->is_overwritten ||
           (tensor->source == SOURCE_OP && program->ops[tensor->writer].kind == KIND_APPLY);
}

/* Frees what no operator after this one reads. */
static void free_dead(struct flow_program *program, struct memory *memory, const uint32_t *by_last,
                      uint32_t *next, uint64_t number) {
    for (; *next < program->tensor_count && program->tensors[by_last[*next]].last <= number; ++*next) {
        const struct flow_tensor *tensor = &program->tensors[by_last[*next]];
        if (tensor->base == by_last[*next] && !is_kept(program, tensor))
            give(memory, tensor->address, aligned(tensor->bytes));
    }
}

/* Sorts the tensors by their last use, into `out`. */
static bool sort_by_last(const struct flow_program *program, uint32_t *out) {
    uint64_t *first = calloc(program->op_count + 2, sizeof *first);
    if (first == NULL)
        return false;
    for (uint32_t i = 0; i < program->tensor_count; i++)
        first[program->tensors[i].last + 1]++;
    for (uint64_t i = 1; i <= program->op_count; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < program->tensor_count; i++)
        out[first[program->tensors[i].last]++] = i;
    free(first);
    return true;
}

bool memory_plan(struct flow_program *program) {
    struct memory memory = {.holes = calloc(program->tensor_count + 1, sizeof *memory.holes)};
    uint32_t *by_last = calloc(program->tensor_count + 1, sizeof *by_last), next = 0;
    bool planned = memory.holes != NULL && by_last != NULL && sort_by_last(program, by_last);
    for (uint32_t i = 0; planned && i < program->tensor_count; i++) {
        struct flow_tensor *tensor = &program->tensors[i];
        if (tensor->source == SOURCE_WEIGHT || tensor->source == SOURCE_LOADER)
            tensor->address = take(&memory, aligned(tensor->bytes));
        if (tensor->base == i) {
            tensor->place = program->value_bytes;
            program->value_bytes += aligned(tensor->bytes);
        }
    }
    for (uint64_t number = 0; planned && number < program->op_count; number++) {
        place_outputs(program, &memory, number);
        free_dead(program, &memory, by_last, &next, number);
    }
    program->memory_bytes = memory.end;
    free(memory.holes);
    free(by_last);
    return planned;
}
