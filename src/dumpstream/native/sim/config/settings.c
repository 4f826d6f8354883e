#include <ctype.h>
#include <string.h>

#include "config/config.h"
#include "config/words.h"
#include "device/disk.h"
#include "device/stats.h"

enum { MAX_BLACKLIST = 100 };

/* The type that CANN requires of a member, and of the items and their members if it is an array. */
struct member_type {
    const char *key;
    enum json_kind kind, items;
    const struct member_type *members;
};

#define TEXT(key) {key, JSON_STRING, JSON_OTHER, NULL}
#define TEXTS(key) {key, JSON_ARRAY, JSON_STRING, NULL}
#define OBJECTS(key, members) {key, JSON_ARRAY, JSON_OBJECT, members}
#define END {NULL, JSON_OTHER, JSON_OTHER, NULL}

static const struct member_type range_types[] = {TEXT("begin"), TEXT("end"), END};
static const struct member_type entry_types[] = {TEXT("name"), TEXTS("pos"), END};
static const struct member_type item_types[] = {
    TEXT("model_name"),
    TEXTS("layer"),
    TEXTS("watcher_nodes"),
    OBJECTS("optype_blacklist", entry_types),
    OBJECTS("opname_blacklist", entry_types),
    OBJECTS("opname_range", range_types),
    END,
};
static const struct member_type dump_types[] = {
    TEXT("dump_path"),
    TEXT("dump_step"),
    TEXT("dump_kernel_data"),
    TEXTS("dump_stats"),
    OBJECTS("dump_list", item_types),
    END,
};

static bool has_types(const struct json *object, const struct member_type *type) {
    for (; type->key != NULL; type++) {
        const struct json *member = json_member(object, type->key);
        if (member != NULL && member->kind != type->kind)
            return false;
        for (const struct json *item = member ? member->first : NULL; item != NULL; item = item->next)
            if (item->kind != type->items || (type->members != NULL && !has_types(item, type->members)))
                return false;
    }
    return true;
}

/* Sets `value` to `base` plus the place of the word. Without the key it keeps its default. */
static bool read_word(const struct json *dump, const char *key, const char *words, uint32_t base,
                      uint32_t *value) {
    const struct json *member = json_member(dump, key);
    if (member == NULL)
        return true;
    int found = word_place(member->text, words);
    *value = base + (uint32_t)found;
    return found >= 0;
}

static bool read_statistics(const struct json *dump, uint32_t *bits) {
    *bits = json_member(dump, "dump_stats") ? 0 : STATISTICS_DEFAULT;
    for (const struct json *item = json_first(dump, "dump_stats"); item != NULL; item = item->next) {
        int found = word_place(item->text, STATISTIC_NAMES);
        if (found < 0)
            return false;
        *bits |= 1u << found;
    }
    return true;
}

static bool is_kernel_data(const struct json *dump) {
    return json_member(dump, "dump_kernel_data") == NULL ||
           are_words(json_text(dump, "dump_kernel_data"), "all,printf,tensor,assert,timestamp");
}

/* Reads digits. A number that is too large becomes the largest that CANN knows. */
static bool take_step(const char **text, uint64_t *step) {
    *step = 0;
    if (!isdigit((unsigned char)**text))
        return false;
    for (; isdigit((unsigned char)**text); ++*text)
        *step = *step > (INT64_MAX - 9) / 10 ? INT64_MAX : *step * 10 + (uint64_t)(**text - '0');
    return true;
}

static bool read_steps(const char *text, struct dump_config *config) {
    if (!*text)
        return true;
    for (;; text++) {
        struct step_range *range = &config->range[config->ranges];
        if (config->ranges++ == MAX_STEP_RANGES || !take_step(&text, &range->first))
            return false;
        range->last = range->first;
        if (*text == '-') {
            text++;
            if (!take_step(&text, &range->last) || range->last < range->first)
                return false;
        }
        if (*text != '|')
            return !*text;
    }
}

static bool is_blacklist_allowed(const struct json *entry, const struct dump_config *config) {
    size_t count = 0;
    for (; entry != NULL; entry = entry->next)
        count++;
    return count == 0 || (count <= MAX_BLACKLIST && config->levels == LEVEL_OP);
}

static bool are_ranges_allowed(const struct json *item, const struct dump_config *config) {
    const struct json *range = json_first(item, "opname_range");
    if (range != NULL && (config->levels != LEVEL_OP || !*json_text(item, "model_name")))
        return false;
    for (; range != NULL; range = range->next)
        if (!*json_text(range, "begin") || !*json_text(range, "end"))
            return false;
    return true;
}

static bool is_item_allowed(const struct json *item, const struct dump_config *config) {
    const bool watches = config->scene == SCENE_WATCHER;
    const bool has_model = *json_text(item, "model_name"), has_layer = json_first(item, "layer") != NULL;
    if (!config->calls &&
        ((json_member(item, "model_name") && !has_model) || (json_member(item, "layer") && !has_layer)))
        return false;
    if ((json_first(item, "watcher_nodes") != NULL) != watches || (watches && has_model))
        return false;
    return is_blacklist_allowed(json_first(item, "optype_blacklist"), config) &&
           is_blacklist_allowed(json_first(item, "opname_blacklist"), config) &&
           are_ranges_allowed(item, config);
}

/* Whether the choices of operators, steps and statistics go together. */
static bool is_selection_allowed(const struct json *dump, struct dump_config *config, bool statistics) {
    if (config->scene == SCENE_WATCHER && config->io != IO_OUTPUTS)
        return false;
    if (json_member(dump, "dump_stats") && (!json_first(dump, "dump_stats") || !statistics))
        return false;
    for (const struct json *item = config->items; item != NULL; item = item->next)
        if (!is_item_allowed(item, config))
            return false;
    return read_steps(json_text(dump, "dump_step"), config);
}

static bool is_remote_path(const char *path) {
    static const char punctuation[] = "-=[];\\,./!@#$%^&*()_+{}:?";
    for (; *path; path++)
        if (!isalnum((unsigned char)*path) && !strchr(punctuation, *path))
            return false;
    return true;
}

/* An exception dump does not need a path, and accepts any. */
static bool read_path(const char *path, struct dump_config *config, bool on_disk) {
    const bool optional = scene_is_exception(config->scene);
    size_t remote = remote_prefix(path);
    if (!*path || strlen(path) > MAX_DUMP_PATH)
        return optional;
    strcpy(config->dump_path, path);
    if (optional)
        return true;
    return remote > 0 ? is_remote_path(path + remote) : !on_disk || disk_check_directory(path) == 0;
}

bool settings_read(const struct json *dump, struct dump_config *config, bool on_disk) {
    uint32_t calls = 0, debug = 0, scene = SCENE_NONE, content = 0, bits;
    config->io = IO_OUTPUTS;
    config->levels = LEVEL_OP | LEVEL_KERNEL;
    if (dump->first == NULL)
        return true;
    if (!has_types(dump, dump_types) || !read_statistics(dump, &bits) || !is_kernel_data(dump) ||
        !read_word(dump, "dump_mode", "input,output,all", 1, &config->io) ||
        !read_word(dump, "dump_level", "op,kernel,all", 1, &config->levels) ||
        !read_word(dump, "dump_op_switch", "off,on", 0, &calls) ||
        !read_word(dump, "dump_debug", "off,on", 0, &debug) ||
        !read_word(dump, "dump_scene", "lite_exception," EXCEPTION_SCENES ",watcher", SCENE_LITE, &scene) ||
        !read_word(dump, "dump_data", "tensor,stats", 0, &content))
        return false;
    config->scene = (enum scene)scene;
    config->calls = calls;
    config->overflow = debug && scene == SCENE_NONE;
    config->statistics = content ? bits : 0;
    config->items = json_first(dump, "dump_list");
    if (!read_path(json_text(dump, "dump_path"), config, on_disk) ||
        (calls && (debug || scene != SCENE_NONE)))
        return false;
    if (scene_is_exception(config->scene))
        return !debug;
    if (config->overflow)
        return true;
    return !debug && is_selection_allowed(dump, config, content != 0);
}
