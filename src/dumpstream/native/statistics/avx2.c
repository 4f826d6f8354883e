/* Kernels for x86-64 with AVX2, FMA and F16C. Only called on machines that have these. */
#include "vectors_avx2.h"

#include "lanes.h"

const struct ds_kernels ds_avx2_kernels = DS_KERNEL_TABLE("avx2");
