/* The choice of kernels. */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels.h"

/* NULL before the first use, which chooses the fastest. */
static const struct ds_codec_kernels *_Atomic in_use;

static const struct ds_codec_kernels *fastest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul"))
        return &ds_codec_avx2;
    return &ds_codec_portable;
#elif defined(__aarch64__)
    return &ds_codec_neon;
#else
    return &ds_codec_portable;
#endif
}

uint8_t ds_kept_places[256][8];
uint8_t ds_kept_count[256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (unsigned mask = 0; mask < 256; mask++)
        for (uint8_t place = 0; place < 8; place++)
            if (mask >> place & 1)
                ds_kept_places[mask][ds_kept_count[mask]++] = place;
}

const struct ds_codec_kernels *ds_codec_kernels(void) {
    if (!atomic_load(&in_use))
        ds_codec_use("auto");
    return atomic_load(&in_use);
}

const char *ds_codec_use(const char *name) {
    const struct ds_codec_kernels *best = fastest();
    const struct ds_codec_kernels *chosen = NULL;
    if (strcmp(name, "auto") == 0 || strcmp(name, best->name) == 0)
        chosen = best;
    else if (strcmp(name, ds_codec_portable.name) == 0)
        chosen = &ds_codec_portable;
    if (!chosen)
        return NULL;
    pthread_once(&made, make_tables);
    atomic_store(&in_use, chosen);
    return chosen->name;
}
