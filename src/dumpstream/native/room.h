/* Arrays that grow. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dumpstream/tensor_rows.h"

/* Makes room for `needed` items in `*array`, which has room for `*room`. Returns 1, or -ENOMEM. */
static inline int ds_make_room(void **array, size_t *room, size_t needed, size_t item) {
    size_t wanted = *room ? *room : 64;
    if (needed <= *room)
        return 1;
    while (wanted < needed)
        wanted *= 2;
    void *grown = realloc(*array, wanted * item);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *room = wanted;
    return 1;
}

static inline int ds_append_dims(struct ds_dim_list *list, const struct ds_dims *dims) {
    if (dims->count == 0)
        return 1;
    if (ds_make_room((void **)&list->dim, &list->room, list->count + dims->count, sizeof *list->dim) < 0)
        return -ENOMEM;
    memcpy(list->dim + list->count, dims->dim, dims->count * sizeof *list->dim);
    list->count += dims->count;
    return 1;
}
