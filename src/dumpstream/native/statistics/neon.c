/* Kernels for aarch64. */
#include "vectors_neon.h"

#include "lanes.h"

const struct ds_kernels ds_neon_kernels = DS_KERNEL_TABLE("neon");
