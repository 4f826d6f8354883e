/* Reads JSON (RFC 8259) into a tree. */
#pragma once

#include <stddef.h>

/* JSON_OTHER: a number, true, false or null. */
enum json_kind { JSON_OTHER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    const char *key;    /* of an object's member */
    const char *text;   /* of a string, decoded; ends at an escaped NUL */
    struct json *first; /* element or member */
    struct json *next;  /* sibling */
};

/* Changes the text, and the result points into it. A NUL must follow the text. A byte order mark
 * before it is skipped. Returns NULL if the text is not JSON or nests deeper than 256 levels, or
 * without memory. */
struct json *json_parse(char *text, size_t length);
void json_free(struct json *json);

/* Returns the member, the last one of several with the same key. NULL if there is none, also in
 * what is not an object. */
const struct json *json_member(const struct json *object, const char *key);

/* The text of a member that is a string, or "". */
const char *json_text(const struct json *object, const char *key);

/* The first item of a member that is an array, or NULL. */
const struct json *json_first(const struct json *object, const char *key);
