/* Chunks as the runtime passes them to the callback, for tests. */
#pragma once

#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "dumpstream/acl_abi.h"

#define CHUNK_HEAD ((int32_t)offsetof(acldumpChunk, dataBuf))
#define TEST_PAGE 4096u

/* Memory that ends right before a page that may not be touched. */
struct guarded {
    uint8_t *base;
    size_t mapped;
};

static inline uint8_t *guarded_end(const struct guarded *memory) {
    return memory->base + memory->mapped - TEST_PAGE;
}

static inline struct guarded guarded_create(size_t bytes) {
    struct guarded memory = {.mapped = (bytes / TEST_PAGE + 2) * TEST_PAGE};
    memory.base = mmap(NULL, memory.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory.base != MAP_FAILED);
    CHECK_EQUAL(mprotect(guarded_end(&memory), TEST_PAGE, PROT_NONE), 0);
    return memory;
}

static inline void guarded_destroy(struct guarded *memory) {
    munmap(memory->base, memory->mapped);
}

/* Makes a chunk with a payload that ends where `memory` ends. `length` modulo 8 must be 4, so
 * that the chunk is aligned. */
static inline acldumpChunk *chunk_at_end(const struct guarded *memory, const char *name, uint32_t length) {
    uint8_t *start = guarded_end(memory) - CHUNK_HEAD - length;
    CHECK_EQUAL((uintptr_t)start % _Alignof(acldumpChunk), 0);
    acldumpChunk *chunk = (acldumpChunk *)(void *)start;
    strcpy(chunk->fileName, name);
    chunk->bufLen = length;
    chunk->isLastChunk = 0;
    chunk->offset = -1;
    chunk->flag = 0;
    memset(start + CHUNK_HEAD, 'p', length);
    return chunk;
}
