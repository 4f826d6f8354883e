/* The choice of kernels. */
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels.h"

/* NULL before the first use, which chooses the fastest. */
static const struct ds_kernels *_Atomic in_use;

#if defined(__x86_64__)
/* __builtin_cpu_supports does not know F16C in older versions of clang. */
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_F16C;
}
#endif

static const struct ds_kernels *fastest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return &ds_avx2_kernels;
    return &ds_portable_kernels;
#elif defined(__aarch64__)
    return &ds_neon_kernels;
#else
    return &ds_portable_kernels;
#endif
}

const struct ds_kernels *ds_kernels_in_use(void) {
    if (!atomic_load(&in_use))
        ds_kernels_use("auto");
    return atomic_load(&in_use);
}

const char *ds_kernels_use(const char *name) {
    const struct ds_kernels *best = fastest();
    const struct ds_kernels *chosen = NULL;
    if (strcmp(name, "auto") == 0 || strcmp(name, best->name) == 0)
        chosen = best;
    else if (strcmp(name, ds_portable_kernels.name) == 0)
        chosen = &ds_portable_kernels;
    if (!chosen)
        return NULL;
    atomic_store(&in_use, chosen);
    return chosen->name;
}
