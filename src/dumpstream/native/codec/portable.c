/* The kernels for any machine. */
#include "elements.h"

DS_CODEC_KERNELS(portable, ds_crc32_portable);
