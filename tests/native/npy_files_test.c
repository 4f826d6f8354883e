/* The tensors of plain dump files become NPY files; nothing is made of other bytes. */
#include "dumpstream/npy_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "random.h"

static int directory;
static struct ds_npy_type types[DS_DATA_TYPES] = {[1] = {true, true, 4, "<f4"},
                                                  [13] = {true, false, 1, "|u1"}};

/* An output of float32[2] with 12 bytes, and one of bytes with 3. */
static const uint8_t file[] = {28,   0,  0,    0, 0,    0,  0,    0, /* the length of the message */
                               0x1a, 12, 0x08, 1, 0x1a, 2,  0x08, 2,  0x30, 12, 0x48, 1, 0x10, 2, 0x1a, 12,
                               0x08, 13, 0x1a, 2, 0x08, 9,  0x30, 3,  0x48, 1,  0x10, 2, 1,    2, 3,    4,
                               5,    6,  7,    8, 9,    10, 11,   12, 13,   14, 15};

static void test_every_tensor_has_a_file(void) {
    struct ds_npy_result result;
    char made[128 + 8];
    ds_npy_files_write(directory, "a", file, sizeof file, types, &result);
    CHECK_EQUAL(result.taken, 1);
    CHECK_EQUAL(result.error, 0);
    CHECK_EQUAL(result.tensors, 2);
    CHECK_EQUAL(result.bytes, 128 + 8 + 128 + 3);
    int fd = openat(directory, "a.output.0.npy", O_RDONLY);
    CHECK_EQUAL(read(fd, made, sizeof made), (ssize_t)sizeof made);
    close(fd);
    CHECK(memcmp(made, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                 66) == 0);
    CHECK(memcmp(made + 128, file + sizeof file - 15, 8) == 0);
}

static void test_one_in_the_way_is_named_and_the_others_are_made(void) {
    struct ds_npy_result result;
    close(openat(directory, "b.output.0.npy", O_CREAT | O_WRONLY, 0600));
    ds_npy_files_write(directory, "b", file, sizeof file, types, &result);
    CHECK_EQUAL(result.error, -EEXIST);
    CHECK_EQUAL(result.io, DS_OUTPUT);
    CHECK_EQUAL(result.index, 0);
    CHECK_EQUAL(result.tensors, 1);
}

static void test_damaged_files_are_not_taken(void) {
    struct ds_npy_result result;
    for (size_t length = 0; length < sizeof file; length++) {
        uint8_t *cut = malloc(length + 1);
        memcpy(cut, file, length);
        ds_npy_files_write(directory, "cut", cut, length, types, &result);
        CHECK_EQUAL(result.taken, 0);
        free(cut);
    }
}

static void test_any_bytes_can_come(void) {
    struct ds_npy_result result;
    for (int round = 0; round < 5000; round++) {
        uint8_t *copy = malloc(sizeof file);
        memcpy(copy, file, sizeof file);
        for (int changes = 0; changes < 3; changes++)
            copy[8 + next_random(28)] = (uint8_t)next_random(256);
        ds_npy_files_write(directory, "any", copy, sizeof file, types, &result);
        CHECK(result.taken || !result.tensors);
        free(copy);
    }
}

static void remove_all(void) {
    DIR *entries = fdopendir(dup(directory));
    for (struct dirent *entry; (entry = readdir(entries));)
        unlinkat(directory, entry->d_name, 0);
    closedir(entries);
}

int main(void) {
    char path[] = "/tmp/npy_files_test-XXXXXX";
    CHECK(mkdtemp(path) != NULL);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(directory >= 0);
    int probe = openat(directory, ".", O_WRONLY | O_TMPFILE, 0600);
    /* Where files cannot be without a name, Python writes drafts. */
    if (probe >= 0) {
        close(probe);
        test_every_tensor_has_a_file();
        test_one_in_the_way_is_named_and_the_others_are_made();
        test_damaged_files_are_not_taken();
        test_any_bytes_can_come();
    }
    remove_all();
    CHECK_EQUAL(rmdir(path), 0);
    close(directory);
    return 0;
}
