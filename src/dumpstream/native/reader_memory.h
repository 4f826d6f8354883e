/* How a reader accesses its ring, in memory or in a file. `at` counts from the beginning
 * of the ring. */
#pragma once

#include "dumpstream/reader.h"

/* Copies bytes of the ring. Bytes that are no longer in the file read as zeros, which
 * are not a record. */
void ds_reader_load(const struct ds_reader *reader, uint64_t at, void *to, size_t bytes);

/* Words: their loads and stores are seq_cst, in a file as well. */
uint64_t ds_reader_load_word(const struct ds_reader *reader, uint64_t at);
void ds_reader_store_word(struct ds_reader *reader, uint64_t at, uint64_t value);
uint32_t ds_reader_load_waiters(const struct ds_reader *reader);
void ds_reader_store_state(struct ds_reader *reader, enum ds_state state);
