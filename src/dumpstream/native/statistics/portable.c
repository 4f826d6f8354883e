/* Kernels for any machine. */
#include "vectors_portable.h"

#include "lanes.h"

const struct ds_kernels ds_portable_kernels = DS_KERNEL_TABLE("portable");
