/* The lines of a journal, found and measured without making objects of them.
 *
 * Nearly all lines are of files without a loss, written by `FileRow.to_line`
 * with nothing that JSON escapes: the common ones. They are read here; every
 * other line is only found, and left to a reader of JSON. A line is never
 * called common unless that reader would accept it. Nothing in a journal is
 * trusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the name begins in a common line. */
#define DS_JOURNAL_NAME 23

/* What keeps the writer of a journal from choosing names with equal hashes. */
struct ds_journal_key {
    uint64_t first, second;
};

struct ds_journal_line {
    uint64_t start;  /* in the block */
    uint64_t length; /* with the newline, if there is one */
    /* Of a common line: */
    uint64_t hash; /* of the name */
    uint64_t bytes;
    uint64_t chunks;
    uint64_t stored_bytes; /* in all sinks together */
    uint64_t step;         /* if has_step */
    uint32_t name_length;
    uint32_t stored; /* parts, in all sinks together; they all begin at offset 0 */
    uint32_t verdict;
    uint8_t is_common;
    uint8_t at_url;      /* a part may be in an object store */
    uint8_t is_filtered; /* its bytes were not to be stored */
    uint8_t has_step;    /* a step was marked */
};

/* Returns the keyed hash of `size` bytes. */
uint64_t ds_journal_hash(const void *data, size_t size, struct ds_journal_key key);

struct ds_journal_lines {
    struct ds_journal_line *lines; /* from malloc; the caller frees it */
    size_t count;
};

/* Finds the lines in `block`. With a `needle`, only those that contain it.
 * `verdicts` are the words that a verdict may be; a line has the number of its
 * own. Returns 0 or -ENOMEM, with no lines. */
int ds_journal_scan(const char *block, size_t size, struct ds_journal_key key, const char *needle,
                    size_t needle_size, const char *const *verdicts, uint32_t verdict_count,
                    struct ds_journal_lines *found);
