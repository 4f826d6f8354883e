#include "device/exception.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/words.h"
#include "device/disk.h"
#include "workload/random.h"

/* CANN's numbers for what an exception dump contains. */
enum {
    KIND_INPUT = 2,
    KIND_OUTPUT = 3,
    KIND_WORKSPACE = 4,
    KIND_TILING_DATA = 7,
    KIND_L1 = 8,
    KIND_ARGS = 101,
    KIND_STACK = 102,
};

enum { TILING_BYTES = 64, WORKSPACE_BYTES = 4096, L1_BYTES = 8192, STACK_BYTES = 1024, CORES = 32 };

/* Takes the directory that the variable names, if it is one or can be made. */
static bool take_root(const char *variable, char root[PATH_MAX]) {
    const char *path = getenv(variable);
    if (path == NULL || !*path || strlen(path) >= PATH_MAX || disk_make_directory(path, 0700) != 0)
        return false;
    strcpy(root, path);
    return true;
}

void exception_find_root(const char *dump_path, char root[PATH_MAX]) {
    if (!take_root("ASCEND_DUMP_PATH", root) && !take_root("ASCEND_WORK_PATH", root))
        strcpy(root, *dump_path ? dump_path : ".");
}

bool exception_of_environment(struct exception_dump *dump) {
    int found = word_place(getenv("ASCEND_DUMP_SCENE"), EXCEPTION_SCENES);
    if (found >= 0) {
        dump->scene = SCENE_BRIEF + (enum scene)found;
        exception_find_root("", dump->root);
        return true;
    }
    if (!take_root("NPU_COLLECT_PATH", dump->root))
        return false;
    dump->scene = SCENE_NORM;
    return true;
}

int exception_path(const char *root, uint64_t device, const char *last, char out[PATH_MAX]) {
    int length =
        snprintf(out, PATH_MAX, "%s/extra-info/data-dump/%llu%s", root, (unsigned long long)device, last);
    return length < 0 || length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Adds something that only exception dumps have, with bytes of its own. */
static void add(struct dump_file *file, enum part part, uint32_t kind, uint64_t bytes) {
    struct dump_data *data = &file->data;
    data->tensor[data->tensors] = (struct tensor){
        .dtype = DTYPE_INT8,
        .part = part,
        .kind = kind,
        .untyped = true,
        .dims = 1,
        .dim = {bytes},
        .elements = bytes,
        .bytes = bytes,
        .address = UINT64_C(0x12c040000000) + 65536 * kind,
        .key = mix(file->key, kind),
        .arg_index = data->tensors,
    };
    data->tensors++;
}

/* Inputs must come before outputs, and outputs before spaces. */
static void sort_parts(struct dump_data *data) {
    struct tensor sorted[MAX_TENSORS];
    uint32_t count = 0;
    for (enum part part = PART_INPUT; part <= PART_SPACE; part++)
        for (uint32_t i = 0; i < data->tensors; i++)
            if (data->tensor[i].part == part)
                sorted[count++] = data->tensor[i];
    memcpy(data->tensor, sorted, count * sizeof sorted[0]);
}

/* In a brief and in a detailed dump, everything is an input of some kind without a type. A
 * norm dump has the operator's tensors as they are. */
static void describe(struct dump_file *file, enum scene scene) {
    struct dump_data *data = &file->data;
    const bool is_norm = scene == SCENE_NORM;
    for (uint32_t i = 0; i < data->tensors; i++) {
        struct tensor *tensor = &data->tensor[i];
        tensor->kind = tensor->part == PART_OUTPUT ? KIND_OUTPUT : KIND_INPUT;
        tensor->arg_index = i;
        tensor->untyped = !is_norm;
        if (!is_norm) {
            tensor->part = PART_INPUT;
            tensor->dims = 1;
            tensor->dim[0] = tensor->bytes;
        }
    }
    add(file, is_norm ? PART_SPACE : PART_INPUT, KIND_WORKSPACE, WORKSPACE_BYTES);
    add(file, PART_INPUT, KIND_TILING_DATA, TILING_BYTES);
    add(file, PART_INPUT, KIND_ARGS, 8 * (uint64_t)data->tensors);
    if (scene == SCENE_DETAIL) {
        add(file, PART_INPUT, KIND_L1, L1_BYTES);
        add(file, PART_INPUT, KIND_STACK, STACK_BYTES);
    }
    snprintf(data->dfx_message, sizeof data->dfx_message, "operator %s failed: address out of range",
             data->original_op);
}

/* Writes the last part of the path. Times are in milliseconds. */
static void name_file(const struct dump_file *file, const struct op *op, uint64_t step, enum scene scene,
                      char *out, size_t room) {
    const unsigned long long task = op_task(op), stream = op_stream(op);
    const uint64_t time_ms = dump_file_step_us(op->workload, step) / 1000 + op->number;
    time_t second = (time_t)(time_ms / 1000);
    char when[32];
    struct tm calendar;
    strftime(when, sizeof when, "%Y%m%d%H%M%S", gmtime_r(&second, &calendar));
    sprintf(when + strlen(when), "%03u", (unsigned)(time_ms % 1000));
    if (scene == SCENE_NORM)
        snprintf(out, room, "/%s.%s.%llu.%s", op->type, file->data.op_name, task, when);
    else if (scene == SCENE_DETAIL)
        snprintf(out, room, "/exception_info.%llu.%llu.AIC.%llu.%s", stream, task,
                 (unsigned long long)below(mix(file->key, DRAW_CLOCK), CORES), when);
    else
        snprintf(out, room, "/exception_info.%llu.%llu.%s", stream, task, when);
}

int exception_store(struct dump_file *file) {
    enum { BLOCK = 1 << 16 };
    uint8_t block[BLOCK];
    int descriptor = disk_create(file->name);
    int error = descriptor < 0 ? descriptor : 0;
    sort_parts(&file->data);
    dump_file_close(file);
    for (uint64_t at = 0; error == 0 && at < file->bytes; at += BLOCK) {
        size_t bytes = file->bytes - at < BLOCK ? (size_t)(file->bytes - at) : BLOCK;
        dump_file_read(file, at, bytes, block);
        error = disk_write_at(descriptor, block, bytes, (int64_t)at);
    }
    if (descriptor >= 0 && close(descriptor) != 0 && error == 0)
        error = -errno;
    return error;
}

int exception_write(const struct exception_dump *dump, const struct op *op, uint64_t step) {
    struct planned planned = {
        .op = *op,
        .step = step,
        .after = *op,
        .tensors = op_tensors(op, IO_INPUTS | IO_OUTPUTS),
    };
    struct dump_file file;
    char last[256];
    int error = dump_file_plan(&file, "", &planned);
    if (error != 0)
        return error;
    file.faults = 0;
    describe(&file, dump->scene);
    name_file(&file, op, step, dump->scene, last, sizeof last);
    error = exception_path(dump->root, op->workload->device_id, last, file.name);
    return error != 0 ? error : exception_store(&file);
}
