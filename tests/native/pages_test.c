/* The pages of a ring in memory, and when a producer enters them in its page tables. */
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "chunks.h"
#include "pair.h"

/* How many pages of the producer's data lane are in the page tables, of `pages` from its beginning. */
static unsigned entered_pages(unsigned pages) {
    uint64_t entry, first = (uintptr_t)producer.data.base / TEST_PAGE;
    unsigned entered = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (unsigned i = 0; i < pages; i++) {
        CHECK_EQUAL(pread(fd, &entry, sizeof entry, (off_t)((first + i) * sizeof entry)), sizeof entry);
        entered += entry >> 63;
    }
    close(fd);
    return entered;
}

static void first_lap_enters_the_pages_of_memory_many_at_a_time(void) {
    enum { PAGES = 256, RECORD = 33 * TEST_PAGE };
    static const uint8_t data[RECORD];
    CHECK_EQUAL(ds_reader_create(&reader, PAGES * TEST_PAGE, NULL), 0);
    CHECK_EQUAL(ds_ring_map(&producer, reader.ring.memory_fd, PAGES * TEST_PAGE), 0);
    producer.wake = count_wake;
    unsigned before = entered_pages(PAGES);
    CHECK(before <= 16); /* the neighbours of the control block */

    CHECK_EQUAL(push("a", data, RECORD - TEST_PAGE, 0), 0);

    unsigned first = entered_pages(PAGES);
    CHECK(first > 33 && first < PAGES / 2);
    ds_ring_touch(&producer);
    CHECK_EQUAL(entered_pages(PAGES), PAGES);
    close_both();
}

int main(void) {
    first_lap_enters_the_pages_of_memory_many_at_a_time();
    return 0;
}
