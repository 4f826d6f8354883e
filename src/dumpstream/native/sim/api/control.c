#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/runtime.h"
#include "api/sim.h"
#include "device/delivery.h"
#include "device/device.h"
#include "device/record.h"
#include "prof/prof.h"
#include "workload/plan.h"

uint64_t dssim_ops_per_step(const struct dssim_workload *workload) {
    return graph_ops(workload);
}

struct dump_config *dssim_config_open(const char *text) {
    char *copy = strdup(text);
    return copy != NULL ? config_parse(copy, strlen(copy), false) : NULL;
}

void dssim_config_close(struct dump_config *config) {
    config_release(config);
}

/* Appends the names of the file's faults, joined by '+'. */
static void name_faults(const struct dump_file *file, char *out, size_t out_bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t fault = 0; fault < FAULT_COUNT; fault++)
        if (dump_file_has(file, (enum fault)fault))
            used +=
                (size_t)snprintf(out + used, out_bytes - used, "%s%s", used ? "+" : "", fault_names[fault]);
}

/* Writes the bytes to `out`; returns their number. Chunks without offsets are appended as they come,
 * also a slice that comes twice. */
static uint64_t render(const struct delivery *delivery, uint8_t *out) {
    const struct dump_file *file = delivery->file;
    uint64_t bytes = 0;
    for (uint64_t chunk = 0; chunk < delivery->chunks; chunk++) {
        struct slice slice = delivery_slice(delivery, chunk);
        if (out != NULL)
            dump_file_read(file, slice.offset, slice.bytes, out + (delivery->placed ? slice.offset : bytes));
        bytes += slice.bytes;
    }
    return delivery->placed ? delivery->sent_bytes : bytes;
}

/* Text is whole: if its chunks have no header, the host adds it. */
static uint64_t render_text(const struct dump_file *file, uint8_t *out) {
    if (out != NULL)
        dump_file_read(file, 0, file->bytes, out);
    return file->bytes;
}

/* Fills in `about` and, unless it is NULL, `out`. */
static int foresee(const struct dump_file *file, uint64_t slice_bytes, struct dssim_file *about,
                   uint8_t *out) {
    struct delivery delivery;
    int error = delivery_plan(&delivery, file, slice_bytes);
    if (error != 0)
        return error;
    strcpy(about->name, file->name);
    name_faults(file, about->fault, sizeof about->fault);
    about->chunks = delivery.chunks;
    about->bytes = file->text.selection ? render_text(file, out) : render(&delivery, out);
    delivery_free(&delivery);
    return 0;
}

int dssim_file_describe(const struct dssim_workload *workload, const struct dump_config *config,
                        uint64_t step, uint64_t number, uint32_t place, struct dssim_file *about,
                        uint8_t *out) {
    const struct op op = graph_op(workload, number);
    struct planned planned;
    struct dump_file file;
    if (!plan_file(config, &op, step, place, &planned))
        return -ENOENT;
    int error = dump_file_plan(&file, config->dump_path, &planned);
    return error != 0 ? error : foresee(&file, workload->slice_bytes, about, out);
}

void dssim_load(const struct dssim_workload *workload) {
    device_load(workload);
    runtime_set_joining(workload->cann != CANN_8_5);
    prof_load(workload);
}

uint64_t dssim_run(uint64_t steps) {
    return dssim_start(steps) == 0 ? device_wait() : 0;
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
