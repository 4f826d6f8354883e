#include "device/overflow.h"

#include <string.h>

#include "workload/random.h"

enum {
    AI_CORE_INFO = 256,
    AI_CORE_STATUS = 1024,

    MAGIC = 0x5a5a5a5a,
    VERSION = 1,
    AI_CORE = 0,
    ENTRY = 24, /* where the numbers of the newer layout's entry are */

    STATUS_OVERFLOW = 0x8,
};

static void put32(uint8_t *out, uint32_t value) {
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static void put64s(uint8_t *out, const uint64_t *values, uint32_t count) {
    for (uint32_t i = 0; i < count * 8; i++)
        out[i] = (uint8_t)(values[i / 8] >> (8 * (i % 8)));
}

void overflow_record(uint8_t out[OVERFLOW_RECORD_BYTES], const struct op *op, uint64_t key) {
    const uint64_t pc_start = UINT64_C(0x124000000000) + 128 * below(mix(key, DRAW_ADDRESS), 1 << 20);
    const uint64_t para_base = pc_start + (1 << 30);
    const uint64_t block = below(mix(key, DRAW_CLOCK), 32);
    const uint64_t older[] = {op->model + 1, op_stream(op), op_task(op), 0, pc_start, para_base};
    const uint64_t status[] = {pc_start + 0x40, block, STATUS_OVERFLOW};
    const uint64_t entry[] = {op->model + 1, op_stream(op), op_task(op),    0, 0, 0, pc_start, para_base,
                              block,         block,         STATUS_OVERFLOW};
    memset(out, 0, OVERFLOW_RECORD_BYTES);
    if (op->workload->opdebug) {
        const uint32_t head[] = {MAGIC, VERSION, true, AI_CORE, 0, sizeof entry};
        for (uint32_t i = 0; i < sizeof head / sizeof head[0]; i++)
            put32(out + 4 * i, head[i]);
        put64s(out + ENTRY, entry, sizeof entry / sizeof entry[0]);
        return;
    }
    put64s(out + AI_CORE_INFO, older, sizeof older / sizeof older[0]);
    put64s(out + AI_CORE_STATUS, status, sizeof status / sizeof status[0]);
}
