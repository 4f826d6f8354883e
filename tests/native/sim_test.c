/* The simulated runtime calls the callback, and a reader reads the ring: every file arrives
 * with the bytes that the workload promises. */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "api/sim.h"
#include "dumpstream/callback.h"
#include "reading.h"

#define STEPS 2u
#define MAX_FILES 64u
#define LONG_NS 60000000000u

#define COMMON                                                                                               \
    "seed=7\nmodels=2\nops=8\ntensor_bytes=500-30000\nslice_bytes=20000\n"                                   \
    "offsets=0.2\nshuffle=0.2\nmissing_last=0.1\nnull_address=0.1\n"

/* The second one is a data flow, which more threads than steps ask for their values. */
static const char *const workloads[] = {COMMON, COMMON "flow=on\nnan=3@1\ndevice_threads=6\n"};

static struct ds_ring ring;
static struct received {
    struct dssim_file promised;
    uint8_t *bytes;
    uint64_t length;
    uint64_t chunks;
} files[MAX_FILES];
static uint64_t file_count;
static _Atomic bool done;

static struct received *find_file(const struct ds_message *view) {
    for (uint64_t i = 0; i < file_count; i++)
        if (is_named(view, files[i].promised.name))
            return &files[i];
    CHECK(!"a file that the workload does not have");
    return NULL;
}

static void receive(const struct ds_message *view) {
    struct received *file = find_file(view);
    uint64_t at = view->offset < 0 ? file->length : (uint64_t)view->offset;
    CHECK(at + view->data_length <= file->promised.bytes);
    memcpy(file->bytes + at, view->data, view->data_length);
    file->length += view->data_length;
    file->chunks += !(view->flags & DS_RECORD_MORE);
}

static void *read_until_done(void *argument) {
    for (;;) {
        bool last = atomic_load(&done);
        while (!is_empty(&ring, &ring.data)) {
            struct ds_message view = take(&ring, &ring.data);
            receive(&view);
            free_read(&ring, &ring.data);
        }
        if (last)
            return argument;
        sched_yield();
    }
}

static void describe_files(const struct dssim_workload *workload, const struct dump_config *config) {
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint64_t number = 0; number < dssim_ops_per_step(workload); number++) {
            CHECK(file_count < MAX_FILES);
            struct received *file = &files[file_count++];
            CHECK_EQUAL(dssim_file_describe(workload, config, step, number, 0, &file->promised, NULL), 0);
            CHECK((file->bytes = calloc(1, file->promised.bytes + 1)));
        }
    }
}

static void check_files(const struct dssim_workload *workload, const struct dump_config *config) {
    uint64_t per_step = dssim_ops_per_step(workload);
    struct dssim_file about;
    for (uint64_t i = 0; i < file_count; i++) {
        uint8_t *expected = malloc(files[i].promised.bytes + 1);
        CHECK(expected);
        CHECK_EQUAL(dssim_file_describe(workload, config, i / per_step, i % per_step, 0, &about, expected),
                    0);
        CHECK_EQUAL(files[i].chunks, files[i].promised.chunks);
        CHECK_EQUAL(files[i].length, files[i].promised.bytes);
        CHECK(memcmp(files[i].bytes, expected, files[i].promised.bytes) == 0);
        free(expected);
        free(files[i].bytes);
    }
}

static void dump(const struct dssim_workload *workload, const char *config) {
    CHECK_EQUAL(aclInit(NULL), 0);
    CHECK_EQUAL(aclrtSetDevice(0), 0);
    CHECK_EQUAL(acldumpRegCallback(ds_on_chunk, 0), 0);
    CHECK_EQUAL(aclmdlInitDump(), 0);
    CHECK_EQUAL(aclmdlSetDump(config), 0);
    dssim_load(workload);
    CHECK_EQUAL(dssim_run(STEPS), file_count);
    CHECK_EQUAL(aclrtSynchronizeDevice(), 0);
    CHECK_EQUAL(aclmdlFinalizeDump(), 0);
}

static struct dump_config *write_config(const char *path, const char *dump_path) {
    char text[256];
    FILE *config = fopen(path, "w");
    CHECK(config);
    snprintf(text, sizeof text,
             "{\"dump\": {\"dump_path\": \"%s\", \"dump_mode\": \"all\", \"dump_level\": \"op\", "
             "\"dump_list\": [{}]}}",
             dump_path);
    fputs(text, config);
    fclose(config);
    return dssim_config_open(text);
}

static void run(const char *text, const char *config, const struct dump_config *order) {
    const struct ds_policy policy = {
        .block = true, .block_limit_ns = LONG_NS, .max_file_bytes = UINT64_C(1) << 40};
    char error[200];
    pthread_t reader;
    struct dssim_counters counters;
    struct dssim_workload *workload = dssim_workload_open(text, error, sizeof error);
    CHECK(workload);
    memset(files, 0, sizeof files);
    file_count = 0;
    atomic_store(&done, false);
    describe_files(workload, order);
    CHECK_EQUAL(ds_ring_create(&ring, DS_RING_MIN_BYTES, NULL), 0);
    CHECK_EQUAL(ds_attach(&ring, &policy), 0);

    CHECK_EQUAL(pthread_create(&reader, NULL, read_until_done, NULL), 0);
    dump(workload, config);
    CHECK_EQUAL(ds_detach(&ring, LONG_NS), 0);
    atomic_store(&done, true);
    pthread_join(reader, NULL);

    check_files(workload, order);
    dssim_read_counters(&counters);
    CHECK_EQUAL(counters.delivered, atomic_load(&ring.control->callbacks));
    CHECK_EQUAL(counters.refused + counters.disk + counters.lost, 0);
    dssim_reset();
    dssim_workload_close(workload);
    ds_ring_destroy(&ring);
}

int main(void) {
    char directory[] = "/tmp/dumpstream-sim-XXXXXX", config[64];
    CHECK(mkdtemp(directory));
    snprintf(config, sizeof config, "%s/acl.json", directory);
    struct dump_config *order = write_config(config, directory);
    CHECK(order);
    for (size_t i = 0; i < sizeof workloads / sizeof workloads[0]; i++)
        run(workloads[i], config, order);
    dssim_config_close(order);
    unlink(config);
    rmdir(directory);
    return 0;
}
