#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/runtime.h"
#include "api/sim.h"
#include "device/exception.h"

_Static_assert(sizeof(acldumpTensorInfo) == 456, "acldumpTensorInfo");
_Static_assert(offsetof(acldumpTensorInfo, tensorAddr) == 24, "tensorAddr");
_Static_assert(offsetof(acldumpTensorInfo, shape) == 56, "shape");

static bool is_enabled(const struct dump_order *order, acldumpType type) {
    const enum scene scene = order->exception.scene;
    if (type == DATA_DUMP || type == OVERFLOW_DUMP)
        return config_dumps(order->config) && order->config->overflow == (type == OVERFLOW_DUMP);
    return (type == AIC_ERR_BRIEF_DUMP && (scene == SCENE_BRIEF || scene == SCENE_LITE)) ||
           (type == AIC_ERR_NORM_DUMP && scene == SCENE_NORM) ||
           (type == AIC_ERR_DETAIL_DUMP && scene == SCENE_DETAIL);
}

/* The result stays valid until the thread calls again. */
const char *acldumpGetPath(acldumpType type) {
    static _Thread_local char path[PATH_MAX];
    struct dump_order order = runtime_dump_order();
    bool enabled = is_enabled(&order, type);
    if (enabled)
        strcpy(path, type < DATA_DUMP ? order.exception.root : order.config->dump_path);
    config_release(order.config);
    return enabled ? path : NULL;
}

/* Where exception dumps go, or went last, followed by `last`. */
static int current_path(const char *last, char out[PATH_MAX]) {
    struct dump_order order = runtime_dump_order();
    int32_t device = 0;
    config_release(order.config);
    if (!*order.exception.root)
        exception_find_root("", order.exception.root);
    aclrtGetDevice(&device);
    return exception_path(order.exception.root, (uint64_t)device, last, out);
}

aclError acldumpGetExceptionInfoPath(char *path, size_t bytes) {
    char directory[PATH_MAX];
    if (path == NULL || bytes <= 1 || current_path("", directory) != 0 || strlen(directory) >= bytes)
        return ACL_ERROR_INVALID_PARAM;
    strcpy(path, directory);
    return ACL_SUCCESS;
}

static bool is_tensor(const acldumpTensorInfo *info) {
    return info->tensorAddr != NULL && info->tensorSize > 0 && info->shapeNum <= ACL_DUMP_MAX_SHAPE_NUM &&
           info->originShapeNum <= ACL_DUMP_MAX_SHAPE_NUM && info->type <= ACL_DUMP_TENSOR_WORKSPACE &&
           info->addrType <= ACL_DUMP_ADDR_RAW && info->placement < ACL_DUMP_PLACEMENT_END;
}

/* The simulated device has no memory of its own: every address is one of the program. A type that it does
 * not know is left out of the dump. */
static struct tensor describe(const acldumpTensorInfo *info, uint32_t place) {
    static const enum part parts[] = {PART_INPUT, PART_OUTPUT, PART_SPACE};
    struct tensor tensor = {
        .dtype = DTYPE_UINT8,
        .part = parts[info->type],
        .untyped = true,
        .arg_index = place,
        .dims = info->shapeNum,
        .bytes = info->tensorSize,
        .address = (uint64_t)(uintptr_t)info->tensorAddr,
        .given = (const uint8_t *)info->tensorAddr,
    };
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (dtype_facts[dtype].acl_number == info->dataType) {
            tensor.dtype = dtype;
            tensor.untyped = false;
        }
    }
    memcpy(tensor.dim, info->shape, info->shapeNum * sizeof tensor.dim[0]);
    if (info->addrType == ACL_DUMP_ADDR_PTR_PTR)
        memcpy(&tensor.given, info->tensorAddr, sizeof tensor.given);
    return tensor;
}

static int save(const char *name, const char *user_tag, const acldumpTensorInfo *tensors, size_t count) {
    struct dump_file file;
    char when[32], last[PATH_MAX];
    struct timespec now;
    struct tm calendar;
    memset(&file, 0, offsetof(struct dump_file, record));
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(when, sizeof when, "%Y%m%d%H%M%S", localtime_r(&now.tv_sec, &calendar));
    file.data.time_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    snprintf(file.data.op_name, sizeof file.data.op_name, "%s", name);
    snprintf(file.data.original_op, sizeof file.data.original_op, "%s", name);
    snprintf(file.data.user_tag, sizeof file.data.user_tag, "%s", user_tag != NULL ? user_tag : "");
    for (size_t i = 0; i < count; i++)
        file.data.tensor[file.data.tensors++] = describe(&tensors[i], (uint32_t)i);
    int length = snprintf(last, sizeof last, "/%s.custom.%s%03ld", name, when, now.tv_nsec / 1000000);
    if (length < 0 || (size_t)length >= sizeof last || current_path(last, file.name) != 0)
        return -ENAMETOOLONG;
    return exception_store(&file);
}

aclError acldumpSaveExceptionInfo(const char *name, const char *user_tag, const acldumpTensorInfo *tensors,
                                  size_t count) {
    if (name == NULL || !*name || strstr(name, "..") != NULL || tensors == NULL || count == 0)
        return ACL_ERROR_INVALID_PARAM;
    for (size_t i = 0; i < count; i++)
        if (!is_tensor(&tensors[i]))
            return ACL_ERROR_INVALID_PARAM;
    struct dump_order order = runtime_dump_order();
    config_release(order.config);
    if (order.exception.scene == SCENE_NONE)
        return ACL_ERROR_FAILURE;
    return count <= MAX_TENSORS && save(name, user_tag, tensors, count) == 0 ? ACL_SUCCESS
                                                                             : ACL_ERROR_INTERNAL_ERROR;
}
