#include "dumpstream/operator_name.h"

#include <string.h>

#define PARTS 5
#define MOST_BYTES 512u
#define MOST_CALL_DIGITS 18u

enum { TYPE, OPERATOR, TASK, STREAM, TIME };

struct part {
    const char *at;
    size_t length;
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool read_number(struct part part, int64_t *number) {
    *number = 0;
    for (size_t i = 0; i < part.length; i++) {
        if (!is_digit(part.at[i]) || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, part.at[i] - '0', number))
            return false;
    }
    return part.length > 0;
}

static bool split(const char *name, size_t length, struct part parts[PARTS]) {
    size_t part = 0, start = 0;
    for (size_t i = 0; i <= length; i++) {
        if (i < length && name[i] != '.')
            continue;
        if (part == PARTS)
            return false;
        parts[part++] = (struct part){name + start, i - start};
        start = i + 1;
    }
    return part == PARTS;
}

/* Whether the operator is written as the device writes it, and is not a number, which another kind of name
 * has there. */
static bool is_operator(struct part part) {
    bool digits = true;
    for (size_t i = 0; i < part.length; i++) {
        digits = digits && is_digit(part.at[i]);
        if (part.at[i] == ' ' || part.at[i] == '\\' || part.at[i] == '/')
            return false;
    }
    return part.length > 0 && !digits;
}

/* Finds the number in a type such as Add_12_L0: `start` and `stop` are around "12_". Returns whether there is
 * one; `*readable` is false if it is too long. */
static bool find_call(struct part type, size_t *start, size_t *stop, bool *readable) {
    size_t end = type.length;
    *readable = true;
    if (end < 6 || type.at[end - 2] != 'L' || type.at[end - 3] != '_' ||
        (type.at[end - 1] != '0' && type.at[end - 1] != '2'))
        return false;
    size_t digits = 0, last = end - 3;
    while (digits < last && is_digit(type.at[last - 1 - digits]))
        digits++;
    if (digits == 0 || last < digits + 2 || type.at[last - digits - 1] != '_')
        return false;
    *start = last - digits;
    *stop = end - 2;
    *readable = digits <= MOST_CALL_DIGITS;
    return true;
}

bool ds_operator_name_read(const char *name, size_t length, struct ds_journal_key key,
                           struct ds_operator_name *found) {
    struct part parts[PARTS];
    int64_t stream;
    size_t start, stop;
    bool readable;
    char text[MOST_BYTES];
    if (length > MOST_BYTES || !split(name, length, parts) || parts[TYPE].length == 0 ||
        memchr(name, '/', parts[TYPE].length) || !is_operator(parts[OPERATOR]) ||
        !read_number(parts[TASK], &found->task) || !read_number(parts[STREAM], &stream) ||
        !read_number(parts[TIME], &found->time))
        return false;
    size_t whole = (size_t)(parts[TASK].at - name);
    found->sequence = DS_NO_SEQUENCE;
    if (!find_call(parts[TYPE], &start, &stop, &readable)) {
        found->operator_hash = ds_journal_hash(name, whole, key);
        return true;
    }
    if (!readable || !read_number((struct part){name + start, stop - start - 1}, &found->sequence))
        return false;
    memcpy(text, name, start);
    memcpy(text + start, name + stop, whole - stop);
    found->operator_hash = ds_journal_hash(text, whole - (stop - start), key);
    return true;
}
