#include "config/selection.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const struct json *object, const char *key) {
    const struct json *member = json_member(object, key);
    return member != NULL ? member->text : "";
}

static const struct json *first_of(const struct json *object, const char *key) {
    const struct json *member = json_member(object, key);
    return member != NULL ? member->first : NULL;
}

static bool is_among(const struct json *first, const char *text) {
    for (; first != NULL; first = first->next)
        if (strcmp(first->text, text) == 0)
            return true;
    return false;
}

bool selection_has_step(const struct dump_config *config, uint64_t step) {
    for (uint32_t i = 0; i < config->ranges; i++)
        if (config->range[i].first <= step && step <= config->range[i].last)
            return true;
    return config->ranges == 0;
}

/* Of several items for a model, the last one that has the key counts. */
static const struct json *item_for(const struct dump_config *config, const char *model, const char *key) {
    const struct json *found = NULL;
    const struct json *item = config->list != NULL ? config->list->first : NULL;
    for (; item != NULL; item = item->next)
        if (strcmp(text_of(item, "model_name"), model) == 0 && (key == NULL || first_of(item, key) != NULL))
            found = item;
    return found;
}

/* Both ends belong to the range; neither may be a data operator. */
static bool is_between(const struct json *range, const struct dssim_workload *workload, const struct op *op) {
    const char *begin = text_of(range, "begin"), *end = text_of(range, "end");
    struct op first, last;
    bool has_first = graph_find(workload, op->model, begin, &first);
    bool has_last = graph_find(workload, op->model, end, &last);
    if ((has_first && op_is_data(&first)) || (has_last && op_is_data(&last)) || op_is_data(op))
        return false;
    if (strcmp(op->name, begin) == 0 || strcmp(op->name, end) == 0)
        return true;
    return has_first && has_last && first.place <= op->place && op->place <= last.place;
}

/* Whether dump_list names the operator. An item without model_name decides for all models. */
static bool is_chosen(const struct dump_config *config, const struct dssim_workload *workload,
                      const struct op *op) {
    char model[MAX_MODEL_NAME];
    const struct json *item = item_for(config, "", NULL), *layer, *range = NULL, *ranged;
    graph_model_name(op->model, model);
    if (item == NULL)
        item = item_for(config, model, NULL);
    if (item == NULL)
        return false;
    ranged = item_for(config, model, "opname_range");
    if (ranged != NULL)
        range = first_of(ranged, "opname_range");
    layer = first_of(item, "layer");
    if (layer == NULL && (!*text_of(item, "model_name") || range == NULL))
        return true;
    if (!op_is_data(op) && is_among(layer, op->name))
        return true;
    for (; range != NULL; range = range->next)
        if (is_between(range, workload, op))
            return true;
    return false;
}

static uint32_t places_in(const struct json *entry, const char *name, const struct dssim_workload *workload) {
    uint32_t places = 0;
    for (; entry != NULL; entry = entry->next) {
        if (strcmp(text_of(entry, "name"), name) != 0)
            continue;
        for (uint32_t i = 0; i < workload->inputs + workload->outputs; i++) {
            char position[24];
            bool is_output = i >= workload->inputs;
            snprintf(position, sizeof position, "%s%u", is_output ? "output" : "input",
                     (unsigned)(is_output ? i - workload->inputs : i));
            if (is_among(first_of(entry, "pos"), position))
                places |= 1u << i;
        }
    }
    return places;
}

/* The blacklists of all items for a model add up. */
static uint32_t blacklisted(const struct dump_config *config, const struct dssim_workload *workload,
                            const struct op *op) {
    char model[MAX_MODEL_NAME];
    uint32_t places = 0;
    graph_model_name(op->model, model);
    for (const struct json *item = config->list->first; item != NULL; item = item->next) {
        const char *whose = text_of(item, "model_name");
        if (*whose && strcmp(whose, model) != 0)
            continue;
        places |= places_in(first_of(item, "optype_blacklist"), op->type, workload);
        places |= places_in(first_of(item, "opname_blacklist"), op->name, workload);
    }
    return places;
}

uint32_t selection_tensors(const struct dump_config *config, const struct dssim_workload *workload,
                           const struct op *op) {
    bool chosen = config->list != NULL && is_chosen(config, workload, op);
    if (!chosen && config->list != NULL && op_is_data(op) && op->place + 1 < workload->ops) {
        struct op fed = graph_op(workload, op->number + 1);
        chosen = is_chosen(config, workload, &fed);
    }
    return chosen ? workload_tensors(workload, config->io) & ~blacklisted(config, workload, op) : 0;
}

/* In watch mode the last item replaces the others. */
static const struct json *watch_item(const struct dump_config *config) {
    const struct json *item = config->list->first;
    while (item->next != NULL)
        item = item->next;
    return item;
}

bool selection_triggers(const struct dump_config *config, const struct op *op) {
    const struct json *item = watch_item(config);
    const struct json *layer = first_of(item, "layer");
    if (is_among(first_of(item, "watcher_nodes"), op->name))
        return true;
    return !op_is_collective(op) && (layer == NULL || is_among(layer, op->name));
}

bool selection_watched(const struct dump_config *config, const struct dssim_workload *workload,
                       uint64_t model, uint32_t place, struct op *watched) {
    const struct json *nodes = first_of(watch_item(config), "watcher_nodes");
    for (const struct json *node = nodes; node != NULL; node = node->next) {
        const struct json *first = nodes; /* the first node of the same name */
        while (strcmp(first->text, node->text) != 0)
            first = first->next;
        if (first == node && graph_find(workload, model, node->text, watched) && place-- == 0)
            return true;
    }
    return false;
}
