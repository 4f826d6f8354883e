/* Kernels for x86-64 with AVX2, FMA and F16C. Only called on machines that have these. */
#include "../statistics/vectors_avx2.h"

#include "lanes.h"

const struct ds_pair_kernels ds_avx2_pair_kernels = DS_PAIR_KERNEL_TABLE;
