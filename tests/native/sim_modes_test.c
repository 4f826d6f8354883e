/* Every mode of the simulated runtime, and configurations that are cut off or damaged, under
 * the sanitizers: the files are those of the forecast. */
#include <ftw.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "api/sim.h"
#include "check.h"

enum { STEPS = 2, MAX_TEXT = 1024, SUCCESS = 0, INVALID_DUMP_CONFIG = 100009 };

static const char WORKLOAD[] =
    "models=2\nops=8\nsingle_ops=2\nop_types=Data+Relu+HcomAllReduce+Add\ntensor_bytes=64-2000\n"
    "device_threads=3\noverflow=3@1\nfails=1\noverwrite=5:3\nslice_bytes=700\nshuffle=0.3\n";

static const char *const SETTINGS[] = {
    "\"dump_mode\": \"all\", \"dump_list\": [{}], \"dump_op_switch\": \"on\"",
    "\"dump_level\": \"op\", \"dump_step\": \"0|7-9\", \"dump_list\": [{\"model_name\": \"transformer_1\", "
    "\"layer\": [\"layer_1_Relu\"], \"opname_range\": [{\"begin\": \"layer_3_Add\", \"end\": "
    "\"layer_5_Relu\"}], \"optype_blacklist\": [{\"name\": \"Relu\", \"pos\": [\"output0\"]}]}]",
    "\"dump_mode\": \"all\", \"dump_list\": [{}], \"dump_data\": \"stats\", \"dump_stats\": [\"Max\", "
    "\"L2norm\"]",
    "\"dump_debug\": \"on\"",
    "\"dump_scene\": \"watcher\", \"dump_list\": [{\"layer\": [\"layer_5_Relu\"], \"watcher_nodes\": "
    "[\"layer_3_Add\", \"absent\", \"layer_1_Relu\"]}]",
    "\"dump_scene\": \"aic_err_brief_dump\"",
    "\"dump_scene\": \"aic_err_detail_dump\"",
};

enum { MODES = sizeof SETTINGS / sizeof SETTINGS[0] };

static char directory[] = "/tmp/dumpstream-sim-XXXXXX";
static char config_path[64];
static _Atomic uint64_t chunks;

static int32_t count_chunk(const acldumpChunk *chunk, int32_t length) {
    CHECK_EQUAL(length, sizeof *chunk + chunk->bufLen);
    atomic_fetch_add(&chunks, 1);
    return 0;
}

static void write_config(const char *text, size_t length) {
    FILE *config = fopen(config_path, "w");
    CHECK(config);
    CHECK_EQUAL(fwrite(text, 1, length, config), length);
    fclose(config);
}

/* Returns how many files there will be. Renders each of them, too. */
static uint64_t forecast(const struct dssim_workload *workload, const char *text, uint64_t *all_chunks) {
    struct dump_config *config = dssim_config_open(text);
    struct dssim_file about;
    uint64_t files = 0;
    CHECK(config);
    for (uint64_t count = 0; count < STEPS * dssim_ops_per_step(workload); count++) {
        uint64_t step = count / dssim_ops_per_step(workload), number = count % dssim_ops_per_step(workload);
        for (uint32_t place = 0;
             dssim_file_describe(workload, config, step, number, place, &about, NULL) == 0; place++) {
            uint8_t *out = malloc(about.bytes);
            CHECK(out);
            CHECK_EQUAL(dssim_file_describe(workload, config, step, number, place, &about, out), 0);
            free(out);
            files++;
            *all_chunks += about.chunks;
        }
    }
    dssim_config_close(config);
    return files;
}

static void run_mode(const struct dssim_workload *workload, const char *settings) {
    char text[MAX_TEXT];
    struct dssim_counters counters;
    uint64_t files, expected_chunks = 0;
    int length = snprintf(text, sizeof text, "{\"dump\": {\"dump_path\": \"%s\", %s}}", directory, settings);
    write_config(text, (size_t)length);
    files = forecast(workload, text, &expected_chunks);
    atomic_store(&chunks, 0);

    CHECK_EQUAL(aclInit(NULL), SUCCESS);
    CHECK_EQUAL(aclrtSetDevice(0), SUCCESS);
    CHECK_EQUAL(acldumpRegCallback(count_chunk, 0), SUCCESS);
    CHECK_EQUAL(aclmdlInitDump(), SUCCESS);
    CHECK_EQUAL(aclmdlSetDump(config_path), SUCCESS);
    dssim_load(workload);
    dssim_load_models();
    CHECK_EQUAL(dssim_run(STEPS), files);
    dssim_unload_models();
    CHECK_EQUAL(aclmdlFinalizeDump(), SUCCESS);

    dssim_read_counters(&counters);
    CHECK_EQUAL(atomic_load(&chunks), expected_chunks);
    CHECK_EQUAL(counters.lost, 0);
    CHECK((counters.exceptions > 0) == (strstr(settings, "aic_err") != NULL));
    dssim_reset();
}

/* A text that is cut off anywhere is not JSON. A text with a changed byte must not crash. */
static void damage_configs(void) {
    CHECK_EQUAL(aclInit(NULL), SUCCESS);
    CHECK_EQUAL(aclmdlInitDump(), SUCCESS);
    for (size_t mode = 0; mode < MODES; mode++) {
        char text[MAX_TEXT];
        int length =
            snprintf(text, sizeof text, "{\"dump\": {\"dump_path\": \"%s\", %s}}", directory, SETTINGS[mode]);
        for (int cut = 1; cut < length; cut += 7) {
            write_config(text, (size_t)cut);
            CHECK_EQUAL(aclmdlSetDump(config_path), INVALID_DUMP_CONFIG);
        }
        for (int place = 0; place < length; place += 5) {
            char kept = text[place];
            text[place] = "{[\"1,]}\\"[place % 8];
            write_config(text, (size_t)length);
            aclmdlSetDump(config_path);
            text[place] = kept;
        }
    }
    CHECK_EQUAL(aclmdlFinalizeDump(), SUCCESS);
    dssim_reset();
}

static void save_exception_info(void) {
    static const char scene[] = "{\"dump\": {\"dump_scene\": \"lite_exception\"}}";
    float data[6] = {1, 2, 3, 4, 5, 6};
    acldumpTensorInfo tensor = {.tensorSize = sizeof data, .shapeNum = ACL_DUMP_MAX_SHAPE_NUM};
    char path[128];
    tensor.tensorAddr = (int64_t *)(void *)data;
    for (uint32_t i = 0; i < ACL_DUMP_MAX_SHAPE_NUM; i++)
        tensor.shape[i] = UINT64_MAX;
    write_config(scene, sizeof scene - 1);
    CHECK_EQUAL(chdir(directory), 0);
    CHECK_EQUAL(aclInit(config_path), SUCCESS);
    CHECK_EQUAL(acldumpSaveExceptionInfo("mine", NULL, &tensor, 1), SUCCESS);
    CHECK_EQUAL(acldumpGetExceptionInfoPath(path, sizeof path), SUCCESS);
    CHECK_EQUAL(access(path, R_OK), 0);
    CHECK_EQUAL(aclFinalize(), SUCCESS);
    dssim_reset();
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place) {
    (void)about, (void)kind, (void)place;
    return remove(path);
}

int main(void) {
    char error[200];
    struct dssim_workload *workload = dssim_workload_open(WORKLOAD, error, sizeof error);
    CHECK(workload);
    CHECK(mkdtemp(directory));
    unsetenv("ASCEND_DUMP_PATH");
    unsetenv("ASCEND_WORK_PATH");
    unsetenv("ASCEND_DUMP_SCENE");
    unsetenv("NPU_COLLECT_PATH");
    snprintf(config_path, sizeof config_path, "%s/acl.json", directory);
    for (size_t mode = 0; mode < MODES; mode++)
        run_mode(workload, SETTINGS[mode]);
    damage_configs();
    save_exception_info();
    dssim_workload_close(workload);
    CHECK_EQUAL(nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    return 0;
}
