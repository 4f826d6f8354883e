/* The choice of kernels. */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels.h"

/* NULL before the first use, which chooses the fastest. */
static const struct ds_codec_kernels *_Atomic in_use;

/* The fastest first; the last one runs everywhere. */
static const struct ds_codec_kernels *const all[] = {
#if defined(__x86_64__)
    &ds_codec_avx2_wide,
    &ds_codec_avx2,
#elif defined(__aarch64__)
    &ds_codec_neon,
#endif
    &ds_codec_portable,
};
#define ALL (sizeof all / sizeof *all)

static bool runs_here(const struct ds_codec_kernels *kernels) {
#if defined(__x86_64__)
    if (kernels == &ds_codec_avx2_wide && !__builtin_cpu_supports("vpclmulqdq"))
        return false;
    if (kernels != &ds_codec_portable)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul");
#endif
    return kernels != NULL;
}

/* As a place, it stands for 0 in every set of vectors. */
#define NO_BYTE 0x80

struct ds_places ds_places;
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* Makes the tables of elements of `width` bytes, which are so many in a vector. */
static void make_places(unsigned width, unsigned elements, uint8_t *keep, uint8_t *spread) {
    const unsigned bytes = width * elements;
    memset(spread, NO_BYTE, (size_t)bytes << elements);
    for (unsigned mask = 0; mask < 1u << elements; mask++, keep += bytes, spread += bytes)
        for (unsigned element = 0, kept = 0; element < elements; element++)
            if (mask >> element & 1) {
                for (unsigned byte = 0; byte < width; byte++) {
                    unsigned from = element * width + byte, to = kept * width + byte;
                    keep[to] = (uint8_t)from;
                    spread[from] = (uint8_t)to;
                }
                kept++;
            }
}

static void make_tables(void) {
    for (unsigned mask = 0; mask < 256; mask++)
        ds_places.count[mask] = (uint8_t)__builtin_popcount(mask);
    make_places(1, 8, *ds_places.keep_1, *ds_places.spread_1);
    make_places(2, 8, *ds_places.keep_2, *ds_places.spread_2);
    make_places(4, 4, *ds_places.keep_4, *ds_places.spread_4);
}

const struct ds_codec_kernels *ds_codec_kernels(void) {
    if (!atomic_load(&in_use))
        ds_codec_use("auto");
    return atomic_load(&in_use);
}

const char *ds_codec_use(const char *name) {
    const struct ds_codec_kernels *chosen = NULL;
    for (size_t i = 0; i < ALL && !chosen; i++)
        if ((strcmp(name, "auto") == 0 || strcmp(name, all[i]->name) == 0) && runs_here(all[i]))
            chosen = all[i];
    if (!chosen)
        return NULL;
    pthread_once(&made, make_tables);
    atomic_store(&in_use, chosen);
    return chosen->name;
}
