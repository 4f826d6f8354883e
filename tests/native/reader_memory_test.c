/* The memory and the files of a ring that another process fills: what is mapped, what cannot
 * be done to it, and from which files a reader resumes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "chunks.h"
#include "pair.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What the kernel says when pages are to be touched in advance; 0: what it says by itself. */
static int populating_error;

int madvise(void *start, size_t length, int advice) {
    if (advice != MADV_POPULATE_WRITE || !populating_error)
        return (int)syscall(SYS_madvise, start, length, advice);
    errno = populating_error;
    return -1;
}

/* Mapping */

static void only_a_ring_of_that_size_is_mapped(void) {
    struct ds_ring other;
    open_both();

    CHECK_EQUAL(ds_ring_map(&other, reader.ring.memory_fd, RING_BYTES + TEST_PAGE), -EBADMSG);
    CHECK_EQUAL(ds_ring_map(&other, reader.ring.memory_fd, RING_BYTES - 1), -EBADMSG);
    CHECK_EQUAL(ds_ring_map(&other, reader.ring.memory_fd, ALL), -EBADMSG);
    CHECK_EQUAL(ds_ring_map(&other, STDIN_FILENO, RING_BYTES), -EBADMSG);
    producer.control->magic ^= 1;
    CHECK_EQUAL(ds_ring_map(&other, reader.ring.memory_fd, RING_BYTES), -EBADMSG);

    close_both();
}

static void memory_that_may_shrink_is_not_mapped(void) {
    struct ds_ring open, mapped;
    CHECK_EQUAL(ds_ring_create(&open, RING_BYTES, NULL), 0);

    CHECK_EQUAL(ds_ring_map(&mapped, open.memory_fd, RING_BYTES), -EBADMSG);

    ds_ring_destroy(&open);
}

static void memory_can_neither_shrink_nor_grow(void) {
    open_both();

    CHECK_EQUAL(ftruncate(reader.ring.memory_fd, 0), -1);
    CHECK_EQUAL(ftruncate(reader.ring.memory_fd, 1 << 30), -1);
    CHECK_EQUAL(fcntl(reader.ring.memory_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);

    close_both();
}

static void too_little_memory_is_an_error_and_not_the_end(void) {
    static const int errors[] = {ENOMEM, EFAULT};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct ds_ring ring;
        populating_error = errors[i];
        CHECK_EQUAL(ds_reader_create(&reader, RING_BYTES, NULL), -ENOMEM);
        CHECK_EQUAL(ds_ring_create(&ring, RING_BYTES, NULL), -ENOMEM);
    }
    populating_error = EINVAL; /* a kernel that cannot do it */
    open_both();
    populating_error = 0;
    close_both();
}

/* Files */

static void truncated_file_does_not_kill(void) {
    struct ds_counters counters;
    open_both();
    CHECK_EQUAL(push("a", "gone", 4, 0), 0);

    CHECK_EQUAL(truncate(path, 0), 0);

    expect_text("");
    CHECK(!ds_ring_arm(&reader.ring, 0));
    ds_ring_disarm(&reader.ring);
    ds_ring_set_state(&reader.ring, DS_STATE_DISCARD);
    ds_reader_count(&reader, &counters);
    ds_reader_end(&reader);
    expect_text("");
    close_both();
}

static void resumed_reader_goes_on_where_the_other_stopped(void) {
    open_both();
    CHECK_EQUAL(push("a", "read", 4, 0), 0);
    expect_text("read");
    CHECK_EQUAL(push("a", "unread", 6, 0), 0);
    struct ds_batch batch = take_batch(); /* its space is never freed */
    ds_batch_free(&batch);
    ds_ring_destroy(&reader.ring);

    CHECK_EQUAL(ds_reader_resume(&reader, path), 0);

    expect_text("unread");
    CHECK_EQUAL(push("a", "more", 4, 0), 0);
    expect_text("more");
    close_both();
}

/* A ring of 4 MiB with a record as short as its content, as the version before made them. */
static void leave_short_record(uint64_t version) {
    unlink(path);
    CHECK_EQUAL(ds_reader_create(&reader, 4u << 20, path), 0);
    CHECK_EQUAL(ds_ring_map(&producer, reader.ring.memory_fd, 4u << 20), 0);
    producer.wake = count_wake;
    producer.data.least = 0;
    CHECK_EQUAL(push("a", "short", 5, 0), 0);
    producer.control->version = version;
    ds_ring_destroy(&reader.ring);
    CHECK_EQUAL(ds_reader_resume(&reader, path), 0);
}

static void ring_of_an_older_version_may_have_shorter_records(void) {
    struct ds_batch batch;
    leave_short_record(3);
    expect_text("short");
    close_both();

    leave_short_record(4);
    CHECK_EQUAL(ds_reader_take(&reader, ALL, HUGE_BATCH, &batch), -EBADMSG);
    close_both();
}

static void file_that_is_no_ring_is_not_resumed(void) {
    struct ds_reader other;
    const uint64_t words[] = {offsetof(struct ds_control, magic),     offsetof(struct ds_control, version),
                              offsetof(struct ds_control, data_size), offsetof(struct ds_control, note_size),
                              offsetof(struct ds_control, data.head), offsetof(struct ds_control, data.tail),
                              offsetof(struct ds_control, notes.tail)};
    CHECK_EQUAL(ds_reader_resume(&other, "/proc/nonexistent"), -ENOENT);
    CHECK_EQUAL(ds_reader_resume(&other, "/dev/null"), -EBADMSG);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        open_both();
        *(uint64_t *)(void *)((uint8_t *)producer.control + words[i]) += 24;
        CHECK_EQUAL(ds_reader_resume(&other, path), -EBADMSG);
        close_both();
    }
    open_both();
    CHECK_EQUAL(truncate(path, 100), 0);
    CHECK_EQUAL(ds_reader_resume(&other, path), -EBADMSG);
    close_both();
}

int main(void) {
    CHECK_EQUAL(close(mkstemp(path)), 0);
    only_a_ring_of_that_size_is_mapped();
    memory_that_may_shrink_is_not_mapped();
    memory_can_neither_shrink_nor_grow();
    too_little_memory_is_an_error_and_not_the_end();

    in_file = true;
    only_a_ring_of_that_size_is_mapped();
    truncated_file_does_not_kill();
    resumed_reader_goes_on_where_the_other_stopped();
    ring_of_an_older_version_may_have_shorter_records();
    file_that_is_no_ring_is_not_resumed();
    unlink(path);
    return 0;
}
