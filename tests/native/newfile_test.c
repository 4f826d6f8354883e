/* Files that appear whole under their names, or not at all. */
#include "dumpstream/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static int directory;

static off_t size_of(const char *name) {
    struct stat status;
    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_size : -1;
}

static void test_a_file_appears_and_is_not_replaced(void) {
    CHECK_EQUAL(ds_new_file(directory, "a", "whole", 5), 0);
    CHECK_EQUAL(ds_new_file(directory, "a", "another", 7), -EEXIST);
    CHECK_EQUAL(size_of("a"), 5);
    CHECK_EQUAL(ds_new_file(directory, "empty", NULL, 0), 0);
    CHECK_EQUAL(size_of("empty"), 0);
}

static void test_a_link_in_its_place_is_not_followed(void) {
    CHECK_EQUAL(symlinkat("elsewhere", directory, "link"), 0);
    CHECK_EQUAL(ds_new_file(directory, "link", "x", 1), -EEXIST);
    CHECK_EQUAL(size_of("elsewhere"), -1);
}

static void test_a_file_that_cannot_be_written_does_not_appear(void) {
    static const char data[2000];
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQUAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1000, before.rlim_max};
    CHECK_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_EQUAL(ds_new_file(directory, "large", data, sizeof data), -EFBIG);
    CHECK_EQUAL(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_EQUAL(size_of("large"), -1);
}

int main(void) {
    char path[] = "/tmp/newfile_test-XXXXXX";
    CHECK(mkdtemp(path) != NULL);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(directory >= 0);
    /* Where files cannot be without a name, Python writes drafts. */
    if (ds_new_file(directory, "first", "1", 1) != -EOPNOTSUPP) {
        test_a_file_appears_and_is_not_replaced();
        test_a_link_in_its_place_is_not_followed();
        test_a_file_that_cannot_be_written_does_not_appear();
    }
    const char *const made[] = {"first", "a", "empty", "link"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        unlinkat(directory, made[i], 0);
    CHECK_EQUAL(rmdir(path), 0);
    close(directory);
    return 0;
}
