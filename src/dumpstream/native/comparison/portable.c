/* Kernels for any machine. */
#include "../statistics/vectors_portable.h"

#include "lanes.h"

const struct ds_pair_kernels ds_portable_pair_kernels = DS_PAIR_KERNEL_TABLE;
