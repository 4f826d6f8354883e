/* libzstd, if this machine has it. It is found when it is needed first, so that neither the
 * build nor the start of a program depends on it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions of libzstd 1.4.5 and later that are used, under their own names. Of the experimental
 * parameters only one is set, and an answer that it is unknown does no harm. */
struct ds_zstd {
    void *(*createCCtx)(void);
    size_t (*freeCCtx)(void *);
    size_t (*CCtx_setParameter)(void *, int, int);
    size_t (*compress2)(void *, void *, size_t, const void *, size_t);
    void *(*createDCtx)(void);
    size_t (*freeDCtx)(void *);
    size_t (*decompressDCtx)(void *, void *, size_t, const void *, size_t);
    unsigned (*isError)(size_t);
    unsigned (*versionNumber)(void);
};

/* Returns NULL if there is none that can be used. */
const struct ds_zstd *ds_zstd_library(void);

/* Both return NULL if there is no library or no memory. With `literals` every byte that is not part of
 * a match is Huffman-coded, also at fast levels. */
void *ds_zstd_compressor(int level, bool literals);
void *ds_zstd_decompressor(void);
/* Both take NULL. */
void ds_zstd_free_compressor(void *compressor);
void ds_zstd_free_decompressor(void *decompressor);

/* Returns the length of the frame that it wrote; 0 if it did not fit, or there is no compressor. */
size_t ds_zstd_compress(void *compressor, const uint8_t *bytes, size_t length, uint8_t *out, size_t room);
/* Whether the frame has exactly `length` bytes, which are then in `out`. */
bool ds_zstd_decompress(void *decompressor, const uint8_t *frame, size_t stored, uint8_t *out, size_t length);

#define DS_ZSTD_REPEATED 17u
/* Writes the frame of bytes that are all alike, or all but the first, which needs no library, and returns its
 * length, DS_ZSTD_REPEATED; 0 if they are not, or too many for it. */
size_t ds_zstd_repeat(const uint8_t *bytes, size_t length, uint8_t *out);
