#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "json.h"

enum { MAX_FILE_BYTES = 10 << 20, MAX_NESTING = 10 };

/* Returns the content, or NULL if it is not a readable regular file of at most 10 MiB. */
static char *read_content(const char *path, size_t *length) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    char *content = NULL;
    if (descriptor < 0)
        return NULL;
    if (fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MAX_FILE_BYTES)
        content = malloc((size_t)about.st_size + 1);
    *length = 0;
    while (content != NULL && *length < (size_t)about.st_size) {
        ssize_t taken = read(descriptor, content + *length, (size_t)about.st_size - *length);
        if (taken <= 0) {
            free(content);
            content = NULL;
        } else {
            *length += (size_t)taken;
        }
    }
    close(descriptor);
    return content;
}

/* CANN counts raw brackets, also those inside strings. */
static bool is_too_deep(const char *content, size_t length) {
    int braces = 0, brackets = 0;
    for (size_t i = 0; i < length; i++) {
        braces += (content[i] == '{') - (content[i] == '}');
        brackets += (content[i] == '[') - (content[i] == ']');
        if (braces > MAX_NESTING || brackets > MAX_NESTING)
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

static bool is_writable_directory(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode) && access(path, R_OK | W_OK) == 0;
}

static bool read_switch(const struct json *dump, const char *key, bool *on) {
    const struct json *value = json_member(dump, key);
    *on = false;
    if (value == NULL)
        return true;
    if (value->kind != JSON_STRING)
        return false;
    *on = strcmp(value->text, "on") == 0;
    return *on || strcmp(value->text, "off") == 0;
}

static bool read_dump(const struct json *dump, struct dump_config *config) {
    const struct json *path = json_member(dump, "dump_path");
    const struct json *list = json_member(dump, "dump_list");
    bool every_op;
    if (path == NULL || path->kind != JSON_STRING || strlen(path->text) > MAX_DUMP_PATH)
        return false;
    if (remote_prefix(path->text) == 0 && !is_writable_directory(path->text))
        return false;
    if (list != NULL && list->kind != JSON_ARRAY)
        return false;
    if (!read_switch(dump, "dump_op_switch", &every_op))
        return false;
    strcpy(config->dump_path, path->text);
    config->active = every_op || (list != NULL && list->first != NULL);
    return true;
}

static aclError interpret(const char *content, size_t length, struct dump_config *config) {
    struct json *root = json_parse(content, length);
    const struct json *dump;
    bool valid = false;
    if (root != NULL && root->kind == JSON_OBJECT) {
        dump = json_member(root, "dump");
        valid =
            dump == NULL || (dump->kind == JSON_OBJECT && (dump->first == NULL || read_dump(dump, config)));
    }
    json_free(root);
    return valid ? ACL_SUCCESS : ACL_ERROR_INVALID_DUMP_CONFIG;
}

aclError config_read(const char *path, struct config_file *file) {
    size_t length;
    char *content = read_content(path, &length);
    aclError code = ACL_SUCCESS;
    *file = (struct config_file){.empty = true};
    if (content == NULL)
        return ACL_ERROR_INVALID_FILE;
    if (is_too_deep(content, length)) {
        code = ACL_ERROR_PARSE_FILE;
    } else if (length > 0) {
        file->empty = false;
        file->content_hash = hash(content, length);
        code = interpret(content, length, &file->dump);
    }
    free(content);
    return code;
}
