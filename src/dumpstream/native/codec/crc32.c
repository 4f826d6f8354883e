/* CRC-32 with tables, eight bytes at a time. */
#include <pthread.h>

#include "kernels.h"

#define POLYNOMIAL 0xedb88320u
#define TABLES 8

static uint32_t tables[TABLES][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (int t = 1; t < TABLES; t++)
        for (uint32_t i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
}

uint32_t ds_crc32_portable(uint32_t crc, const uint8_t *bytes, size_t length) {
    pthread_once(&made, make_tables);
    crc = ~crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint32_t first = ds_load_32(bytes) ^ crc, second = ds_load_32(bytes + 4);
        crc = 0;
        for (int k = 0; k < 4; k++)
            crc ^= tables[7 - k][first >> 8 * k & 255] ^ tables[3 - k][second >> 8 * k & 255];
    }
    for (; length; bytes++, length--)
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes) & 255];
    return ~crc;
}

uint32_t ds_crc32(const uint8_t *bytes, size_t length) {
    return ds_codec_kernels()->crc32(0, bytes, length);
}
