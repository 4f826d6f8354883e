/* A reader and the producer of its ring, as in two processes, for tests. */
#pragma once

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "dumpstream/reader.h"

#define RING_BYTES DS_RING_MIN_BYTES
#define ALL UINT64_MAX
#define HUGE_BATCH ((uint64_t)1 << 40)

static bool in_file;
static char path[] = "/tmp/dumpstream-reader-XXXXXX";
static struct ds_reader reader;
static struct ds_ring producer;
static unsigned woken;

static inline void count_wake(struct ds_ring *ring) {
    (void)ring;
    woken++;
}

static inline void open_both(void) {
    unlink(path);
    CHECK_EQUAL(ds_reader_create(&reader, RING_BYTES, in_file ? path : NULL), 0);
    CHECK_EQUAL(ds_ring_map(&producer, reader.ring.memory_fd, RING_BYTES), 0);
    producer.wake = count_wake;
    woken = 0;
}

static inline void close_both(void) {
    ds_ring_destroy(&producer);
    ds_ring_destroy(&reader.ring);
}

static inline int push(const char *name, const void *data, uint32_t length, uint32_t flags) {
    struct ds_message message = {.name = name,
                                 .name_length = (uint32_t)strlen(name),
                                 .data = data,
                                 .data_length = length,
                                 .offset = -1,
                                 .flags = flags};
    return ds_ring_push(&producer, &producer.data, &message);
}

static inline struct ds_batch take_batch(void) {
    struct ds_batch batch;
    CHECK_EQUAL(ds_reader_take(&reader, ALL, HUGE_BATCH, &batch), 0);
    return batch;
}

/* Takes a batch, frees its space, and returns its chunks as one string. */
static inline const char *take_text(void) {
    static char text[RING_BYTES];
    struct ds_batch batch = take_batch();
    struct ds_message view;
    uint64_t position = batch.chunks.start;
    size_t length = 0;
    while (ds_records_next(&batch.chunks, &position, &view) == 1) {
        memcpy(text + length, view.data, view.data_length);
        length += view.data_length;
    }
    text[length] = '\0';
    ds_ring_free(&reader.ring, &reader.ring.data, batch.chunks.end);
    ds_batch_free(&batch);
    return text;
}

static inline void expect_text(const char *expected) {
    const char *text = take_text();
    if (strcmp(text, expected) != 0)
        fprintf(stderr, "'%s', not '%s'\n", text, expected);
    CHECK(strcmp(text, expected) == 0);
}
