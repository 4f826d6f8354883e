#include "workload/plan.h"

#include <stdio.h>
#include <string.h>

static bool is_among(const struct json *first, const char *text) {
    for (; first != NULL; first = first->next)
        if (strcmp(first->text, text) == 0)
            return true;
    return false;
}

static bool has_step(const struct dump_config *config, uint64_t step) {
    for (uint32_t i = 0; i < config->ranges; i++)
        if (config->range[i].first <= step && step <= config->range[i].last)
            return true;
    return config->ranges == 0;
}

/* Of several items for a model, the last one that has the key counts. */
static const struct json *item_for(const struct dump_config *config, const char *model, const char *key) {
    const struct json *found = NULL;
    for (const struct json *item = config->items; item != NULL; item = item->next)
        if (strcmp(json_text(item, "model_name"), model) == 0 && (key == NULL || json_first(item, key)))
            found = item;
    return found;
}

/* Both ends belong to the range; neither may be a data operator. */
static bool is_between(const struct json *range, const struct op *op) {
    const char *begin = json_text(range, "begin"), *end = json_text(range, "end");
    struct op first, last;
    bool has_first = graph_find(op, begin, &first);
    bool has_last = graph_find(op, end, &last);
    if ((has_first && op_is_data(&first)) || (has_last && op_is_data(&last)) || op_is_data(op))
        return false;
    if (strcmp(op->name, begin) == 0 || strcmp(op->name, end) == 0)
        return true;
    return has_first && has_last && first.place <= op->place && op->place <= last.place;
}

/* Whether dump_list names the operator. An item without model_name decides for all models. */
static bool is_chosen(const struct dump_config *config, const struct op *op) {
    char model[MAX_MODEL_NAME];
    op_model_name(op, model);
    const struct json *item = item_for(config, "", NULL);
    if (item == NULL)
        item = item_for(config, model, NULL);
    if (item == NULL)
        return false;
    const struct json *range = json_first(item_for(config, model, "opname_range"), "opname_range");
    const struct json *layer = json_first(item, "layer");
    if (layer == NULL && (!*json_text(item, "model_name") || range == NULL))
        return true;
    if (!op_is_data(op) && is_among(layer, op->name))
        return true;
    for (; range != NULL; range = range->next)
        if (is_between(range, op))
            return true;
    return false;
}

/* The tensors that entries of a blacklist for `name` have, as bits. */
static uint32_t listed(const struct json *entry, const char *name, const struct op *op) {
    const uint32_t inputs = op_inputs(op), outputs = op_outputs(op);
    uint32_t tensors = 0;
    for (; entry != NULL; entry = entry->next) {
        if (strcmp(json_text(entry, "name"), name) != 0)
            continue;
        for (uint32_t i = 0; i < inputs + outputs; i++) {
            char position[24];
            snprintf(position, sizeof position, i < inputs ? "input%u" : "output%u",
                     i < inputs ? i : i - inputs);
            if (is_among(json_first(entry, "pos"), position))
                tensors |= 1u << i;
        }
    }
    return tensors;
}

/* The blacklists of all items for a model add up. */
static uint32_t blacklisted(const struct dump_config *config, const struct op *op) {
    char model[MAX_MODEL_NAME];
    uint32_t tensors = 0;
    op_model_name(op, model);
    for (const struct json *item = config->items; item != NULL; item = item->next) {
        const char *whose = json_text(item, "model_name");
        if (*whose && strcmp(whose, model) != 0)
            continue;
        tensors |= listed(json_first(item, "optype_blacklist"), op->type, op);
        tensors |= listed(json_first(item, "opname_blacklist"), op->name, op);
    }
    return tensors;
}

/* The tensors that dump_list, its blacklists and dump_mode select from an operator of a model. */
static uint32_t selected(const struct dump_config *config, const struct op *op) {
    bool chosen = is_chosen(config, op);
    if (!chosen && op_is_data(op) && op->place + 1 < op->workload->ops) {
        struct op fed = graph_op(op->workload, op->number + 1);
        chosen = is_chosen(config, &fed);
    }
    return chosen ? op_tensors(op, config->io) & ~blacklisted(config, op) : 0;
}

/* Fills in the file at `place` among those with these tensors at these levels. If the
 * operator may change its inputs, they are in a file of their own, which is dumped before
 * the operator runs. */
static bool split(uint32_t tensors, uint32_t levels, uint32_t place, struct planned *file) {
    const struct op *op = &file->op;
    uint32_t inputs = tensors & op_tensors(op, IO_INPUTS);
    bool separate = op->workload->io_files || op->is_call || op_is_collective(op);
    uint32_t parts[2] = {separate ? inputs : tensors, separate ? tensors & ~inputs : 0};
    for (uint32_t level = LEVEL_OP; level <= LEVEL_KERNEL; level <<= 1) {
        for (uint32_t i = 0; i < 2; i++) {
            if (!(levels & level) || parts[i] == 0 || place-- > 0)
                continue;
            file->is_kernel = level == LEVEL_KERNEL;
            file->tensors = parts[i];
            file->is_before = separate && i == 0;
            return true;
        }
    }
    return false;
}

/* Only operators on the AI Core can overflow. The record comes after their tensors. */
static bool plan_overflow(uint32_t place, struct planned *file) {
    const struct op *op = &file->op;
    uint32_t tensors = op_tensors(op, IO_INPUTS | IO_OUTPUTS);
    if (op->is_call || op_is_data(op) || op_is_collective(op) || !op_overflows(op, file->step))
        return false;
    file->statistics = 0;
    if (split(tensors, LEVEL_OP, place, file))
        return true;
    file->is_opdebug = place > 0 && split(tensors, LEVEL_OP, place - 1, file);
    return file->is_opdebug;
}

/* Whether the outputs of the watched operators are dumped after this one. */
static bool triggers(const struct json *item, const struct op *op) {
    const struct json *layer = json_first(item, "layer");
    if (is_among(json_first(item, "watcher_nodes"), op->name))
        return true;
    return !op_is_collective(op) && (layer == NULL || is_among(layer, op->name));
}

/* In watch mode the last item replaces the others. A node that is named twice is watched once. */
static bool plan_watch(const struct dump_config *config, uint32_t place, struct planned *file) {
    const struct json *item = config->items, *nodes, *first;
    while (item->next != NULL)
        item = item->next;
    if (file->after.is_call || !has_step(config, file->step) || !triggers(item, &file->after))
        return false;
    nodes = json_first(item, "watcher_nodes");
    for (const struct json *node = nodes; node != NULL; node = node->next) {
        for (first = nodes; strcmp(first->text, node->text) != 0; first = first->next)
            ;
        if (first != node || !graph_find(&file->after, node->text, &file->op) || op_is_undumped(&file->op) ||
            place-- > 0)
            continue;
        file->tensors = op_tensors(&file->op, IO_OUTPUTS);
        return true;
    }
    return false;
}

bool plan_file(const struct dump_config *config, const struct op *after, uint64_t step, uint32_t place,
               struct planned *file) {
    uint32_t tensors;
    *file = (struct planned){
        .op = *after,
        .step = step,
        .after = *after,
        .place = place,
        .statistics = config->statistics,
    };
    if (!config_dumps(config))
        return false;
    if (config->scene == SCENE_WATCHER && !config->overflow)
        return plan_watch(config, place, file);
    if (op_is_undumped(after))
        return false;
    if (config->overflow)
        return plan_overflow(place, file);
    if (after->is_call) /* a call has no step */
        tensors = config->calls && config->ranges == 0 ? op_tensors(after, config->io) : 0;
    else
        tensors = has_step(config, step) ? selected(config, after) : 0;
    return split(tensors, config->levels, place, file);
}
