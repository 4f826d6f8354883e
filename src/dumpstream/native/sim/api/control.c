#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/runtime.h"
#include "api/sim.h"
#include "device/delivery.h"
#include "device/record.h"
#include "flow/flow.h"
#include "workload/plan.h"

struct dump_config *dssim_config_open(const char *text) {
    char *copy = strdup(text);
    return copy != NULL ? config_parse(copy, strlen(copy), false) : NULL;
}

void dssim_config_close(struct dump_config *config) {
    config_release(config);
}

/* Writes the names of the file's faults, joined by '+'. */
static void name_faults(const struct dump_file *file, char *out, size_t out_bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t fault = 0; fault < FAULT_COUNT; fault++)
        if (dump_file_has(file, (enum fault)fault))
            used +=
                (size_t)snprintf(out + used, out_bytes - used, "%s%s", used ? "+" : "", fault_names[fault]);
}

/* Writes the bytes to `out` unless it is NULL; returns their number. Chunks without offsets are appended
 * as they come, also a slice that comes twice. Text comes whole: its header is added by the host. */
static uint64_t render(const struct delivery *delivery, uint8_t *out) {
    const struct dump_file *file = delivery->file;
    uint64_t bytes = 0;
    if (file->text.selection && out != NULL)
        dump_file_read(file, 0, file->bytes, out);
    if (file->text.selection)
        return file->bytes;
    for (uint64_t chunk = 0; chunk < delivery->chunks; chunk++) {
        struct slice slice = delivery_slice(delivery, chunk);
        if (out != NULL)
            dump_file_read(file, slice.offset, slice.bytes, out + (delivery->placed ? slice.offset : bytes));
        bytes += slice.bytes;
    }
    return delivery->placed ? delivery->sent_bytes : bytes;
}

static int describe(const struct dump_config *config, const struct op *op, uint64_t step, uint32_t place,
                    struct dssim_file *about, uint8_t *out) {
    struct planned planned;
    struct dump_file file;
    struct delivery delivery;
    if (!plan_file(config, op, step, place, &planned))
        return -ENOENT;
    int error = dump_file_plan(&file, config->dump_path, &planned);
    if (error == 0)
        error = delivery_plan(&delivery, &file, op->workload->slice_bytes);
    if (error != 0)
        return error;
    strcpy(about->name, file.name);
    name_faults(&file, about->fault, sizeof about->fault);
    about->chunks = delivery.chunks;
    about->bytes = render(&delivery, out);
    delivery_free(&delivery);
    return 0;
}

int dssim_file_describe(const struct dssim_workload *workload, const struct dump_config *config,
                        uint64_t step, uint64_t number, uint32_t place, struct dssim_file *about,
                        uint8_t *out) {
    struct op op = graph_op(workload, number);
    if (!flow_acquire(workload, step, &op.values))
        return -ENOMEM;
    int error = describe(config, &op, step, place, about, out);
    flow_release(op.values);
    return error;
}

void dssim_read_counters(struct dssim_counters *out) {
    *out = (struct dssim_counters){
        .files = counters.files,
        .delivered = counters.delivered,
        .refused = counters.refused,
        .disk = counters.disk,
        .lost = counters.lost,
        .ignored = counters.ignored,
        .exceptions = counters.exceptions,
    };
}

void dssim_reset(void) {
    struct dssim_workload defaults;
    runtime_reset();
    workload_set_defaults(&defaults);
    dssim_load(&defaults);
    counters.files = counters.exceptions = 0;
    counters.delivered = counters.refused = counters.disk = 0;
    counters.lost = counters.ignored = 0;
}
