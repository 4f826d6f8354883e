/* Kernels for aarch64. */
#include "../statistics/vectors_neon.h"

#include "lanes.h"

const struct ds_pair_kernels ds_neon_pair_kernels = DS_PAIR_KERNEL_TABLE;
