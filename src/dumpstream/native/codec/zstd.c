#include "zstd.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "block.h"

#define OLDEST 10405u /* 1.4.5 */

/* Parameters of CCtx_setParameter. */
enum { COMPRESSION_LEVEL = 100, LITERAL_COMPRESSION = 1002 };
enum { HUFFMAN = 1 };

static struct ds_zstd functions;
static bool found;
static atomic_bool hidden;
static pthread_once_t looked = PTHREAD_ONCE_INIT;

static void look(void) {
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    found = true;
#define FIND(name)                                                                                           \
    do {                                                                                                     \
        void *address = dlsym(library, "ZSTD_" #name);                                                       \
        found = found && address;                                                                            \
        *(void **)&functions.name = address;                                                                 \
    } while (0)
    FIND(createCCtx);
    FIND(freeCCtx);
    FIND(CCtx_setParameter);
    FIND(compress2);
    FIND(createDCtx);
    FIND(freeDCtx);
    FIND(decompressDCtx);
    FIND(isError);
    FIND(versionNumber);
    found = found && functions.versionNumber() >= OLDEST;
}

const struct ds_zstd *ds_zstd_library(void) {
    pthread_once(&looked, look);
    return found && !atomic_load(&hidden) ? &functions : NULL;
}

bool ds_zstd_found(void) {
    return ds_zstd_library() != NULL;
}

void ds_zstd_hide(bool hide) {
    atomic_store(&hidden, hide);
}

void *ds_zstd_compressor(int level, bool literals) {
    const struct ds_zstd *zstd = ds_zstd_library();
    void *compressor = zstd ? zstd->createCCtx() : NULL;
    if (compressor)
        zstd->CCtx_setParameter(compressor, COMPRESSION_LEVEL, level);
    if (compressor && literals)
        zstd->CCtx_setParameter(compressor, LITERAL_COMPRESSION, HUFFMAN);
    return compressor;
}

void *ds_zstd_decompressor(void) {
    const struct ds_zstd *zstd = ds_zstd_library();
    return zstd ? zstd->createDCtx() : NULL;
}

void ds_zstd_free_compressor(void *compressor) {
    if (compressor)
        functions.freeCCtx(compressor);
}

void ds_zstd_free_decompressor(void *decompressor) {
    if (decompressor)
        functions.freeDCtx(decompressor);
}

size_t ds_zstd_compress(void *compressor, const uint8_t *bytes, size_t length, uint8_t *out, size_t room) {
    if (!compressor)
        return 0;
    size_t stored = functions.compress2(compressor, out, room, bytes, length);
    return functions.isError(stored) ? 0 : stored;
}

bool ds_zstd_decompress(void *decompressor, const uint8_t *frame, size_t stored, uint8_t *out,
                        size_t length) {
    if (!decompressor)
        return false;
    size_t made = functions.decompressDCtx(decompressor, out, length, frame, stored);
    return !functions.isError(made) && made == length;
}

#define FRAME_MAGIC 0xfd2fb528u
#define FRAME_SIZED 0xa0u /* its length takes 4 bytes, and there is no window */
#define ONE_AS_IT_IS (1u << 3)
#define LAST_REPEATED 3u
#define MOST_REPEATED (128u << 10)

size_t ds_zstd_repeat(const uint8_t *bytes, size_t length, uint8_t *out) {
    if (length < 3 || length - 1 > MOST_REPEATED || memcmp(bytes + 1, bytes + 2, length - 2) != 0)
        return 0;
    ds_store_32(out, FRAME_MAGIC);
    out[4] = FRAME_SIZED;
    ds_store_32(out + 5, (uint32_t)length);
    /* The headers of both blocks have 3 bytes; the fourth is that behind it. */
    ds_store_32(out + 9, ONE_AS_IT_IS | (uint32_t)bytes[0] << 24);
    ds_store_32(out + 13, LAST_REPEATED | (uint32_t)(length - 1) << 3 | (uint32_t)bytes[1] << 24);
    return DS_ZSTD_REPEATED;
}
