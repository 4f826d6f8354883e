#include "refused_files.h"

#include <string.h>

#include "dumpstream/callback.h"
#include "dumpstream/ring.h"
#include "spin_lock.h"

static struct refused_file {
    uint64_t hash;
    uint64_t bytes;
    uint32_t name_length; /* 0: the slot is free */
} refused[DS_REFUSED_MAX];
static char refused_names[DS_REFUSED_MAX][DS_NAME_MAX + 1];
static _Atomic uint32_t refused_count;
static atomic_flag refused_lock = ATOMIC_FLAG_INIT; /* held for a look-up, never across a copy */

static uint64_t hash_name(const char *name, uint32_t length) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)name[i]) * 0x100000001b3u;
    return hash;
}

static struct refused_file *find_refused(const char *name, uint32_t length, uint64_t hash) {
    for (uint32_t i = 0; i < DS_REFUSED_MAX; i++) {
        struct refused_file *file = &refused[i];
        if (file->name_length == length && file->hash == hash && !memcmp(refused_names[i], name, length))
            return file;
    }
    return NULL;
}

bool remember_refused(const char *name, uint32_t length) {
    uint64_t hash = hash_name(name, length);
    spin_lock(&refused_lock);
    /* Two calls for one file may lose a chunk at the same time. */
    bool stored = find_refused(name, length, hash) != NULL;
    for (uint32_t i = 0; i < DS_REFUSED_MAX && !stored; i++) {
        if (refused[i].name_length)
            continue;
        memcpy(refused_names[i], name, length);
        refused[i] = (struct refused_file){.hash = hash, .name_length = length};
        atomic_fetch_add(&refused_count, 1);
        stored = true;
    }
    spin_unlock(&refused_lock);
    return stored;
}

bool count_refused(const char *name, uint32_t length, uint64_t bytes, bool last, uint64_t *total) {
    if (!atomic_load_explicit(&refused_count, memory_order_relaxed))
        return false;
    uint64_t hash = hash_name(name, length);
    spin_lock(&refused_lock);
    struct refused_file *file = find_refused(name, length, hash);
    if (file) {
        *total = file->bytes += bytes;
        if (last) {
            file->name_length = 0;
            atomic_fetch_sub(&refused_count, 1);
        }
    }
    spin_unlock(&refused_lock);
    return file != NULL;
}

void forget_refused(bool forked) {
    if (forked)
        atomic_flag_clear(&refused_lock);
    memset(refused, 0, sizeof refused);
    atomic_store(&refused_count, 0);
}

bool ds_refused_file(uint32_t index, const char **name, uint32_t *name_length, uint64_t *bytes) {
    *name = refused_names[index];
    *name_length = refused[index].name_length;
    *bytes = refused[index].bytes;
    return *name_length != 0;
}
