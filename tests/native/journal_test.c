/* The reader of journals, with untrusted bytes. Each block lies in memory of exactly its length, so
 * that the address sanitizer sees a read past its end. */
#include <string.h>

#include "check.h"
#include "dumpstream/journal.h"
#include "random.h"

#define MUTATIONS 100000u

static const char COMMON[] =
    "{\"type\":\"file\",\"name\":\"/a/b\",\"bytes\":634,\"chunks\":2,\"verdict\":\"gap\",\"stored\":["
    "{\"sink\":\"zstd\",\"path\":\"packs/1.zip\",\"offset\":0,\"bytes\":634,\"stored_bytes\":488,"
    "\"xxh3\":\"ac718ff122855be5\",\"start\":135,\"etag\":\"\\\"e\\\"\"},"
    "{\"sink\":\"stats\",\"path\":\"s3://b/"
    "1\",\"offset\":0,\"bytes\":634,\"stored_bytes\":12,\"xxh3\":null}]}\n";

static const char *const VERDICTS[] = {"lost", "gap"};
static const struct ds_journal_key KEY = {1, 2};

static struct ds_journal_lines scan(const char *block, size_t size, const char *needle) {
    char *exact = malloc(size ? size : 1);
    CHECK(exact);
    memcpy(exact, block, size);
    struct ds_journal_lines found;
    CHECK_EQUAL(ds_journal_scan(exact, size, KEY, needle, strlen(needle), VERDICTS, 2, &found), 0);
    free(exact);
    return found;
}

static void common_line_is_read(void) {
    struct ds_journal_lines found = scan(COMMON, sizeof COMMON - 1, "");
    CHECK_EQUAL(found.count, 1);
    struct ds_journal_line line = found.lines[0];
    CHECK(line.is_common && line.at_url);
    CHECK_EQUAL(line.length, sizeof COMMON - 1);
    CHECK_EQUAL(line.name_length, 4);
    CHECK(memcmp(COMMON + DS_JOURNAL_NAME, "/a/b", 4) == 0);
    CHECK_EQUAL(line.hash, ds_journal_hash("/a/b", 4, KEY));
    CHECK_EQUAL(line.bytes, 634);
    CHECK_EQUAL(line.chunks, 2);
    CHECK_EQUAL(line.stored_bytes, 500);
    CHECK_EQUAL(line.stored, 2);
    CHECK_EQUAL(line.verdict, 1);
    free(found.lines);
}

static void line_that_is_cut_off_is_not_common(void) {
    for (size_t size = 1; size < sizeof COMMON - 1; size++) {
        struct ds_journal_lines found = scan(COMMON, size, "");
        CHECK_EQUAL(found.count, 1);
        CHECK_EQUAL(found.lines[0].length, size);
        CHECK(!found.lines[0].is_common);
        free(found.lines);
    }
}

static void only_lines_with_the_needle_are_found(void) {
    static const char block[] = "one needle\ntwo\nneedle three\nfour needle";
    struct ds_journal_lines found = scan(block, sizeof block - 1, "needle");
    CHECK_EQUAL(found.count, 3);
    CHECK_EQUAL(found.lines[1].start, 15);
    CHECK_EQUAL(found.lines[1].length, 13);
    CHECK_EQUAL(found.lines[2].start, 28);
    free(found.lines);
}

static void numbers_of_more_than_18_digits_are_left_to_others(void) {
    static const char block[] =
        "{\"type\":\"file\",\"name\":\"a\",\"bytes\":1234567890123456789,\"chunks\":1,"
        "\"verdict\":\"gap\",\"stored\":[]}\n";
    struct ds_journal_lines found = scan(block, sizeof block - 1, "");
    CHECK(!found.lines[0].is_common);
    free(found.lines);
}

static void mutations_are_survived(void) {
    char bytes[2 * sizeof COMMON];
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        size_t size = sizeof COMMON - 1;
        memcpy(bytes, COMMON, size);
        for (uint32_t changes = next_random(4); changes > 0; changes--)
            bytes[next_random((uint32_t)size)] = (char)next_random(256);
        size -= next_random(8);
        struct ds_journal_lines found = scan(bytes, size, "");
        uint64_t end = 0;
        for (size_t line = 0; line < found.count; line++) {
            CHECK_EQUAL(found.lines[line].start, end);
            end += found.lines[line].length;
        }
        CHECK_EQUAL(end, size);
        free(found.lines);
    }
}

static void hash_depends_on_every_byte_and_on_the_key(void) {
    char name[40] = {0};
    for (size_t size = 1; size < sizeof name; size++)
        for (size_t i = 0; i < size; i++) {
            uint64_t before = ds_journal_hash(name, size, KEY);
            name[i] ^= 1;
            CHECK(ds_journal_hash(name, size, KEY) != before);
            name[i] ^= 1;
            CHECK(ds_journal_hash(name, size, (struct ds_journal_key){1, 3}) != before);
        }
}

int main(void) {
    common_line_is_read();
    line_that_is_cut_off_is_not_common();
    only_lines_with_the_needle_are_found();
    numbers_of_more_than_18_digits_are_left_to_others();
    mutations_are_survived();
    hash_depends_on_every_byte_and_on_the_key();
    return 0;
}
