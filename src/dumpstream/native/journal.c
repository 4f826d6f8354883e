/* The lines of a journal: a reader of one form of JSON, and a keyed hash. */
#include "dumpstream/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* SipHash-1-3 */

static uint64_t rotate(uint64_t word, int bits) {
    return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

uint64_t ds_journal_hash(const void *data, size_t size, struct ds_journal_key key) {
    uint64_t v[4] = {key.first ^ 0x736f6d6570736575, key.second ^ 0x646f72616e646f6d,
                     key.first ^ 0x6c7967656e657261, key.second ^ 0x7465646279746573};
    const uint8_t *at = data, *end = at + size / 8 * 8;
    for (; at < end; at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        v[3] ^= word;
        mix(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (size_t i = 0; i < size % 8; i++)
        last |= (uint64_t)at[i] << 8 * i;
    v[3] ^= last;
    mix(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* A line. The functions advance `at`, and return false where the line is not a common one. */

struct text {
    const char *at, *end;
};

static bool skip(struct text *text, const char *literal, size_t size) {
    if ((size_t)(text->end - text->at) < size || memcmp(text->at, literal, size) != 0)
        return false;
    text->at += size;
    return true;
}

#define SKIP(text, literal) skip(text, literal, sizeof(literal) - 1)

/* Reads a string up to its closing quote, which is skipped. */
static bool read_plain(struct text *text, struct text *plain) {
    const char *at = text->at;
    while (at < text->end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
           *at != '\\')
        at++;
    if (at == text->end || *at != '"')
        return false;
    *plain = (struct text){text->at, at};
    text->at = at + 1;
    return true;
}

/* Reads a string in which nothing but quotes is escaped, as in an entity tag. */
static bool skip_quoted(struct text *text) {
    struct text plain;
    while (!read_plain(text, &plain)) {
        const char *escape = memchr(text->at, '\\', (size_t)(text->end - text->at));
        if (!escape || text->end - escape < 2 || escape[1] != '"')
            return false;
        for (const char *at = text->at; at < escape; at++)
            if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x80 || *at == '"')
                return false;
        text->at = escape + 2;
    }
    return true;
}

/* Reads at most 18 digits, which 64 bits have room for. */
static bool read_number(struct text *text, uint64_t *number) {
    const char *begin = text->at;
    *number = 0;
    while (text->at < text->end && *text->at >= '0' && *text->at <= '9' && text->at - begin < 19)
        *number = *number * 10 + (uint64_t)(*text->at++ - '0');
    ptrdiff_t digits = text->at - begin;
    return digits > 0 && digits < 19 && (digits == 1 || *begin != '0');
}

static bool read_part(struct text *text, struct ds_journal_line *line) {
    struct text plain;
    uint64_t offset, bytes, stored_bytes, start;
    if (!SKIP(text, "{\"sink\":\"") || !read_plain(text, &plain) || !SKIP(text, ",\"path\":\"") ||
        !read_plain(text, &plain))
        return false;
    line->at_url |= memmem(plain.at, (size_t)(plain.end - plain.at), "://", 3) != NULL;
    if (!SKIP(text, ",\"offset\":") || !read_number(text, &offset) || offset != 0 ||
        !SKIP(text, ",\"bytes\":") || !read_number(text, &bytes) || !SKIP(text, ",\"stored_bytes\":") ||
        !read_number(text, &stored_bytes) || !SKIP(text, ",\"xxh3\":"))
        return false;
    if (!SKIP(text, "null") && !(SKIP(text, "\"") && read_plain(text, &plain)))
        return false;
    if (SKIP(text, ",\"start\":") && !read_number(text, &start))
        return false;
    if (SKIP(text, ",\"etag\":\"") && !skip_quoted(text))
        return false;
    line->stored++;
    return !__builtin_add_overflow(line->stored_bytes, stored_bytes, &line->stored_bytes) && SKIP(text, "}");
}

static bool read_verdict(struct text *text, const char *const *verdicts, uint32_t count, uint32_t *verdict) {
    struct text plain;
    if (!read_plain(text, &plain))
        return false;
    size_t size = (size_t)(plain.end - plain.at);
    for (*verdict = 0; *verdict < count; ++*verdict)
        if (strlen(verdicts[*verdict]) == size && memcmp(verdicts[*verdict], plain.at, size) == 0)
            return true;
    return false;
}

static bool read_common(struct text text, struct ds_journal_key key, const char *const *verdicts,
                        uint32_t verdict_count, struct ds_journal_line *line) {
    struct text name;
    if (!SKIP(&text, "{\"type\":\"file\",\"name\":\"") || !read_plain(&text, &name) ||
        name.end - name.at > UINT32_MAX || !SKIP(&text, ",\"bytes\":") || !read_number(&text, &line->bytes) ||
        !SKIP(&text, ",\"chunks\":") || !read_number(&text, &line->chunks) ||
        !SKIP(&text, ",\"verdict\":\"") || !read_verdict(&text, verdicts, verdict_count, &line->verdict) ||
        !SKIP(&text, ",\"stored\":["))
        return false;
    if (!SKIP(&text, "]")) {
        do
            if (!read_part(&text, line))
                return false;
        while (SKIP(&text, ","));
        if (!SKIP(&text, "]"))
            return false;
    }
    line->is_filtered = SKIP(&text, ",\"not_stored\":\"filtered\"");
    line->has_step = SKIP(&text, ",\"step\":");
    if (line->has_step && !read_number(&text, &line->step))
        return false;
    line->name_length = (uint32_t)(name.end - name.at);
    line->hash = ds_journal_hash(name.at, line->name_length, key);
    return SKIP(&text, "}\n") && text.at == text.end;
}

/* Lines */

static struct ds_journal_line *append(struct ds_journal_lines *found, size_t *room) {
    if (found->count == *room) {
        size_t larger = *room ? *room * 2 : 1024;
        struct ds_journal_line *lines = realloc(found->lines, larger * sizeof *lines);
        if (!lines)
            return NULL;
        found->lines = lines;
        *room = larger;
    }
    struct ds_journal_line *line = &found->lines[found->count++];
    *line = (struct ds_journal_line){0};
    return line;
}

int ds_journal_scan(const char *block, size_t size, struct ds_journal_key key, const char *needle,
                    size_t needle_size, const char *const *verdicts, uint32_t verdict_count,
                    struct ds_journal_lines *found) {
    const char *end = block + size, *begin = block;
    size_t room = 0;
    *found = (struct ds_journal_lines){0};
    while (begin < end) {
        if (needle_size) {
            const char *hit = memmem(begin, (size_t)(end - begin), needle, needle_size);
            if (!hit)
                break;
            const char *before = memrchr(begin, '\n', (size_t)(hit - begin));
            begin = before ? before + 1 : begin;
        }
        const char *newline = memchr(begin, '\n', (size_t)(end - begin));
        struct text text = {begin, newline ? newline + 1 : end};
        struct ds_journal_line *line = append(found, &room);
        if (!line) {
            free(found->lines);
            *found = (struct ds_journal_lines){0};
            return -ENOMEM;
        }
        line->start = (uint64_t)(begin - block);
        line->length = (uint64_t)(text.end - begin);
        line->is_common = read_common(text, key, verdicts, verdict_count, line);
        begin = text.end;
    }
    return 0;
}
