/* The data flow of the simulated runtime: random workloads hold together, and any thread may ask for any
 * step. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/sim.h"
#include "check.h"
#include "random.h"

enum { THREADS = 4, STEPS = 5, WORKLOADS = 150 };

static const char CONFIG[] = "{\"dump\": {\"dump_path\": \"/dump\", \"dump_mode\": \"all\", "
                             "\"dump_level\": \"op\", \"dump_list\": [{}], \"dump_op_switch\": \"on\"}}";
static struct dump_config *config;

static struct dssim_workload *open_workload(const char *text) {
    char error[1024];
    struct dssim_workload *workload = dssim_workload_open(text, error, sizeof error);
    if (workload == NULL)
        fprintf(stderr, "%s", error);
    CHECK(workload);
    return workload;
}

/* A hash of the names and bytes of all files of a step. */
static uint64_t digest(const struct dssim_workload *workload, uint64_t step) {
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    struct dssim_file file;
    for (uint64_t number = 0; number < dssim_ops_per_step(workload); number++) {
        for (uint32_t place = 0; dssim_file_describe(workload, config, step, number, place, &file, NULL) == 0;
             place++) {
            uint8_t *bytes = malloc(file.bytes + 1);
            CHECK(bytes);
            CHECK_EQUAL(dssim_file_describe(workload, config, step, number, place, &file, bytes), 0);
            for (uint64_t i = 0; i < file.bytes; i++)
                value = (value ^ bytes[i]) * UINT64_C(0x100000001b3);
            free(bytes);
        }
    }
    return value;
}

/* Checks that operands come from earlier operators, of the shape that these wrote. */
static void check_sources(const struct dssim_workload *workload, uint64_t step, uint64_t number,
                          const struct dssim_operand *operand) {
    struct dssim_execution writer;
    CHECK(operand->sources >= 1 && operand->sources <= DSSIM_SOURCES);
    for (uint32_t i = 0; i < operand->sources; i++) {
        if (operand->source[i].kind != DSSIM_OPERATOR)
            continue;
        CHECK(operand->source[i].op < number);
        CHECK_EQUAL(dssim_execution_describe(workload, step, operand->source[i].op, &writer), 0);
        CHECK(operand->source[i].index < writer.outputs);
        const struct dssim_operand *written = &writer.operand[writer.inputs + operand->source[i].index];
        CHECK(written->address < operand->address + operand->bytes);
        CHECK(operand->address < written->address + written->bytes);
        CHECK_EQUAL(written->dtype, operand->dtype);
    }
}

static void check_step(const struct dssim_workload *workload, uint64_t step) {
    struct dssim_execution execution;
    for (uint64_t number = 0; number < dssim_ops_per_step(workload); number++) {
        CHECK_EQUAL(dssim_execution_describe(workload, step, number, &execution), 0);
        CHECK(execution.outputs >= 1);
        for (uint32_t i = 0; i < execution.inputs; i++)
            check_sources(workload, step, number, &execution.operand[i]);
        for (uint32_t i = 0; i < execution.outputs; i++)
            CHECK(execution.operand[execution.inputs + i].bytes > 0);
    }
}

/* Joins up to eight random types. */
static void draw_types(char *out) {
    static const char *const types[] = {
        "MatMulV2",      "Relu",
        "LayerNorm",     "Add",
        "SoftmaxV2",     "GatherV2",
        "Mul",           "Cast",
        "Data",          "ApplyAdam",
        "Gelu",          "HcomAllReduce",
        "HcomAllGather", "HcomReduceScatter",
        "HcomBroadcast", "HcomReceive",
    };
    *out = '\0';
    for (uint32_t left = 1 + next_random(8); left > 0; left--)
        sprintf(out + strlen(out), "%s%s", types[next_random(sizeof types / sizeof types[0])],
                left > 1 ? "+" : "");
}

static void check_random_workloads(void) {
    for (int i = 0; i < WORKLOADS; i++) {
        char types[256], text[1024];
        const uint32_t ranks = 1 + next_random(5);
        draw_types(types);
        snprintf(text, sizeof text,
                 "flow=on\nseed=%d\nmodels=%u\nops=%u\nsingle_ops=%u\nranks=%u\nrank=%u\nop_types=%s\n"
                 "tensor_bytes=1-%u\nnan=rank0:1@1+0.01\noverflow=0.02\nperturb=2:0.5\nundumped=1\n",
                 i, 1 + i % 3, 1 + next_random(20), i % 4, ranks, next_random(ranks), types,
                 1 + next_random(4000));
        struct dssim_workload *workload = open_workload(text);
        for (uint64_t step = 0; step < 3; step++) {
            check_step(workload, step);
            digest(workload, step);
        }
        dssim_workload_close(workload);
    }
}

static const char SHARED[] = "flow=on\nseed=3\nmodels=1\nops=12\nranks=3\nrank=1\ntensor_bytes=500-900\n"
                             "op_types=MatMulV2+Relu+HcomAllReduce+LayerNorm+Add\nnan=rank2:1@2\n";

struct asking {
    const struct dssim_workload *workload;
    uint64_t first;
    uint64_t expected[STEPS];
};

static void *ask(void *argument) {
    struct asking *asking = argument;
    for (int i = 0; i < 20; i++) {
        uint64_t step = (asking->first + (uint64_t)i * 3) % STEPS;
        CHECK(digest(asking->workload, step) == asking->expected[step]);
    }
    return NULL;
}

/* Threads that ask for steps in any order get what another workload gives in order. */
static void check_threads(void) {
    struct dssim_workload *first = open_workload(SHARED), *second = open_workload(SHARED);
    struct asking asking[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        asking[i] = (struct asking){.workload = second, .first = (uint64_t)i};
        for (uint64_t step = 0; step < STEPS; step++)
            asking[i].expected[step] = digest(first, step);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, ask, &asking[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(asking[0].expected[0] != asking[0].expected[1]);
    dssim_workload_close(first);
    dssim_workload_close(second);
}

/* A workload that is loaded outlives its handle, and a forked child can go on with it. */
static void check_loaded(void) {
    struct dssim_workload *workload = open_workload(SHARED);
    int status;
    dssim_load(workload);
    dssim_workload_close(workload);
    CHECK_EQUAL(dssim_run(2), 0); /* nothing is configured */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dssim_run(1);
        dssim_reset();
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    dssim_reset();
}

int main(void) {
    config = dssim_config_open(CONFIG);
    CHECK(config);
    check_random_workloads();
    check_threads();
    check_loaded();
    dssim_config_close(config);
    return 0;
}
