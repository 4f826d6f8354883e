#include "config/config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 10 << 20, MAX_NESTING = 10 };

/* Returns the content, or NULL if it is not a readable regular file of at most 10 MiB. */
static char *read_content(const char *path, size_t *length) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about = {.st_size = 0};
    char *content = NULL;
    ssize_t taken = 1;
    if (descriptor < 0)
        return NULL;
    if (fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MAX_FILE_BYTES)
        content = calloc((size_t)about.st_size + 1, 1);
    *length = 0;
    while (content != NULL && *length < (size_t)about.st_size && taken > 0) {
        taken = read(descriptor, content + *length, (size_t)about.st_size - *length);
        *length += taken > 0 ? (size_t)taken : 0;
    }
    close(descriptor);
    if (taken > 0)
        return content;
    free(content);
    return NULL;
}

/* CANN counts raw brackets, also those inside strings. */
static bool nests_deeper(const char *content, size_t length, char opening, char closing) {
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        depth += content[i] == opening;
        depth -= content[i] == closing && depth > 0;
        if (depth > MAX_NESTING)
            return true;
    }
    return false;
}

static uint64_t hash(const char *content, size_t length) {
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)content[i]) * UINT64_C(0x100000001b3);
    return value;
}

struct dump_config *config_parse(char *text, size_t length, bool on_disk) {
    struct dump_config *config = calloc(1, sizeof *config);
    if (config == NULL) {
        free(text);
        return NULL;
    }
    atomic_init(&config->holders, 1);
    config->text = text;
    config->content_hash = hash(text, length);
    config->root = json_parse(text, length);
    config->profiles = strcmp(json_text(json_member(config->root, "profiler"), "switch"), "on") == 0;
    if (config->root != NULL && config->root->kind == JSON_OBJECT) {
        const struct json *dump = json_member(config->root, "dump");
        if (dump == NULL || (dump->kind == JSON_OBJECT && settings_read(dump, config, on_disk)))
            return config;
    }
    config_release(config);
    return NULL;
}

aclError config_read(const char *path, struct dump_config **config) {
    size_t length;
    char *content = read_content(path, &length);
    *config = NULL;
    if (content == NULL)
        return ACL_ERROR_INVALID_FILE;
    bool deep = nests_deeper(content, length, '{', '}') || nests_deeper(content, length, '[', ']');
    if (deep || length == 0) {
        free(content);
        return deep ? ACL_ERROR_PARSE_FILE : ACL_SUCCESS;
    }
    *config = config_parse(content, length, true);
    return *config != NULL ? ACL_SUCCESS : ACL_ERROR_INVALID_DUMP_CONFIG;
}

struct dump_config *config_hold(struct dump_config *config) {
    if (config != NULL)
        atomic_fetch_add(&config->holders, 1);
    return config;
}

void config_release(struct dump_config *config) {
    if (config == NULL || atomic_fetch_sub(&config->holders, 1) > 1)
        return;
    json_free(config->root);
    free(config->text);
    free(config);
}

bool config_dumps(const struct dump_config *config) {
    if (config == NULL || scene_is_exception(config->scene))
        return false;
    if (config->overflow) /* asked for both, the graph engine dumps neither */
        return config->items == NULL;
    return config->items != NULL || config->calls;
}
