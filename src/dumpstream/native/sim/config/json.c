#include "config/json.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256 };

#define SPACE " \t\r\n"
#define DIGITS "0123456789"

struct reader {
    char *at;
    const char *end;
    int depth;
};

static struct json *read_value(struct reader *reader);

static char peek(const struct reader *reader) {
    return reader->at < reader->end ? *reader->at : '\0';
}

/* Skips one of the characters, if it comes next. */
static bool skip_one(struct reader *reader, const char *characters) {
    bool found = peek(reader) && strchr(characters, peek(reader));
    reader->at += found;
    return found;
}

/* Skips as many of the characters as come next. */
static bool skip_all(struct reader *reader, const char *characters) {
    const char *begin = reader->at;
    while (skip_one(reader, characters))
        ;
    return reader->at > begin;
}

static bool accept(struct reader *reader, const char *wanted) {
    skip_all(reader, SPACE);
    return skip_one(reader, wanted);
}

static bool accept_word(struct reader *reader, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static bool skip_number(struct reader *reader) {
    skip_one(reader, "-");
    if (!skip_one(reader, "0") && !skip_all(reader, DIGITS))
        return false;
    if (skip_one(reader, ".") && !skip_all(reader, DIGITS))
        return false;
    if (!skip_one(reader, "eE"))
        return true;
    skip_one(reader, "+-");
    return skip_all(reader, DIGITS);
}

/* Returns the length of the UTF-8 character, or 0 if it is malformed. */
static size_t utf8_length(const unsigned char *text, size_t room) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : 4;
    uint32_t code = text[0] & (0xffu >> (length + 1));
    if (length == 1)
        return 1;
    if (length > room || (length == 4 && text[0] >> 3 != 30))
        return 0;
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    return length;
}

static bool read_hex4(struct reader *reader, uint32_t *code) {
    static const char digits[] = DIGITS "abcdefABCDEF";
    *code = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        const char *found = peek(reader) ? strchr(digits, peek(reader)) : NULL;
        if (found == NULL)
            return false;
        uint32_t digit = (uint32_t)(found - digits);
        *code = *code << 4 | (digit < 16 ? digit : digit - 6);
    }
    return true;
}

static char *put_utf8(char *out, uint32_t code) {
    static const uint8_t leads[] = {0, 0xc0, 0xe0, 0xf0};
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out++ = (char)(leads[more] | code >> 6 * more);
    while (more-- > 0)
        *out++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    return out;
}

static char *read_unicode(struct reader *reader, char *out) {
    uint32_t code, low;
    if (!read_hex4(reader, &code))
        return NULL;
    if (code >= 0xd800 && code < 0xdc00) {
        if (!accept_word(reader, "\\u") || !read_hex4(reader, &low) || low < 0xdc00 || low > 0xdfff)
            return NULL;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return NULL;
    }
    return put_utf8(out, code);
}

static char *read_escape(struct reader *reader, char *out) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char letter = peek(reader);
    reader->at++;
    if (letter == 'u')
        return read_unicode(reader, out);
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known == NULL)
        return NULL;
    *out++ = meanings[known - letters];
    return out;
}

/* Decodes in place: the decoded text is never longer than its source. */
static char *read_string(struct reader *reader) {
    char *text = reader->at, *out = text;
    while (peek(reader) != '"') {
        size_t length = utf8_length((unsigned char *)reader->at, (size_t)(reader->end - reader->at));
        if (skip_one(reader, "\\")) {
            out = read_escape(reader, out);
            if (out == NULL)
                return NULL;
        } else if (length == 0 || (unsigned char)*reader->at < 0x20) {
            return NULL;
        } else {
            memmove(out, reader->at, length);
            out += length;
            reader->at += length;
        }
    }
    *out = '\0';
    reader->at++;
    return text;
}

/* Reads the elements or members up to `close`, and `close` itself. */
static bool read_children(struct reader *reader, struct json *parent, const char *close) {
    struct json **place = &parent->first;
    if (accept(reader, close))
        return true;
    do {
        char *key = NULL;
        if (parent->kind == JSON_OBJECT &&
            (!accept(reader, "\"") || (key = read_string(reader)) == NULL || !accept(reader, ":")))
            return false;
        *place = read_value(reader);
        if (*place == NULL)
            return false;
        (*place)->key = key;
        place = &(*place)->next;
    } while (accept(reader, ","));
    return accept(reader, close);
}

static bool read_into(struct reader *reader, struct json *json) {
    if (accept(reader, "{")) {
        json->kind = JSON_OBJECT;
        return read_children(reader, json, "}");
    }
    if (accept(reader, "[")) {
        json->kind = JSON_ARRAY;
        return read_children(reader, json, "]");
    }
    if (accept(reader, "\"")) {
        json->kind = JSON_STRING;
        json->text = read_string(reader);
        return json->text != NULL;
    }
    if (accept_word(reader, "true") || accept_word(reader, "false") || accept_word(reader, "null"))
        return true;
    /* CANN refuses a number that no double can hold. */
    const char *number = reader->at;
    return skip_number(reader) && isfinite(strtod(number, NULL));
}

static struct json *read_value(struct reader *reader) {
    struct json *json = reader->depth < MAX_DEPTH ? calloc(1, sizeof *json) : NULL;
    if (json == NULL)
        return NULL;
    reader->depth++;
    bool read = read_into(reader, json);
    reader->depth--;
    if (read)
        return json;
    json_free(json);
    return NULL;
}

struct json *json_parse(char *text, size_t length) {
    struct reader reader = {.at = text, .end = text + length};
    accept_word(&reader, "\xef\xbb\xbf");
    struct json *json = read_value(&reader);
    skip_all(&reader, SPACE);
    if (json != NULL && reader.at != reader.end) {
        json_free(json);
        return NULL;
    }
    return json;
}

void json_free(struct json *json) {
    while (json != NULL) {
        struct json *next = json->next;
        json_free(json->first);
        free(json);
        json = next;
    }
}

const struct json *json_member(const struct json *object, const char *key) {
    const struct json *found = NULL;
    for (const struct json *member = object ? object->first : NULL; member != NULL; member = member->next)
        if (member->key != NULL && strcmp(member->key, key) == 0)
            found = member;
    return found;
}

const char *json_text(const struct json *object, const char *key) {
    const struct json *member = json_member(object, key);
    return member != NULL && member->text != NULL ? member->text : "";
}

const struct json *json_first(const struct json *object, const char *key) {
    const struct json *member = json_member(object, key);
    return member != NULL ? member->first : NULL;
}
