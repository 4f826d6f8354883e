/* Everything that the simulated runtime exports: CANN's dump functions, with CANN's codes
 * and habits, and the functions that drive the simulation.
 *
 * As with CANN, there is one runtime per process. Every function may be called from any
 * thread. Only the record thread calls the registered callback. */
#pragma once

#include <dumpstream/acl_abi.h>

#include "prof/abi.h"

/* CANN's functions; those of profiling are in prof/abi.h. */

enum { ACL_OP_DUMP_OP_AICORE_ARGS = 0x1, ACL_DUMP_MAX_SHAPE_NUM = 25 };

typedef enum acldumpType {
    AIC_ERR_BRIEF_DUMP = 1,
    AIC_ERR_NORM_DUMP = 2,
    AIC_ERR_DETAIL_DUMP = 3,
    DATA_DUMP = 4,
    OVERFLOW_DUMP = 5,
} acldumpType;

enum { ACL_DUMP_TENSOR_INPUT, ACL_DUMP_TENSOR_OUTPUT, ACL_DUMP_TENSOR_WORKSPACE };
enum { ACL_DUMP_ADDR_PTR, ACL_DUMP_ADDR_PTR_PTR, ACL_DUMP_ADDR_RAW };
enum { ACL_DUMP_PLACEMENT_DEVICE, ACL_DUMP_PLACEMENT_HOST, ACL_DUMP_PLACEMENT_END };

typedef struct acldumpTensorInfo {
    uint32_t type;
    size_t tensorSize;
    int32_t format;
    int32_t dataType;
    int64_t *tensorAddr;
    uint32_t addrType;
    uint32_t placement;
    uint32_t argsOffset;
    uint32_t shapeNum;
    uint32_t originShapeNum;
    uint64_t shape[ACL_DUMP_MAX_SHAPE_NUM];
    uint64_t originShape[ACL_DUMP_MAX_SHAPE_NUM];
} acldumpTensorInfo;

#pragma GCC visibility push(default)

const char *acldumpGetPath(acldumpType type);
aclError acldumpSaveExceptionInfo(const char *name, const char *user_tag, const acldumpTensorInfo *tensors,
                                  size_t count);
aclError acldumpGetExceptionInfoPath(char *path, size_t bytes);
aclError aclopStartDumpArgs(uint32_t dump_type, const char *path);
aclError aclopStopDumpArgs(uint32_t dump_type);
aclError aclrtSetDevice(int32_t device);
aclError aclrtGetDevice(int32_t *device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtGetCurrentContext(void **context);
aclError aclrtSetCurrentContext(void *context);

/* Waits only for the device: chunks may still be queued for the record thread.
 * aclmdlFinalizeDump delivers those. */
aclError aclrtSynchronizeDevice(void);

/* Workloads: what the simulated models dump.
 *
 * The text has one key=value per line. The keys are the fields of Workload in simulation/workload.py,
 * which explains them, without `steps` and `mode`. A missing key has the default that it has there; if a
 * key comes twice, the last one counts. */
struct dssim_workload;

/* Returns NULL and one line of explanation in `error` if the text is wrong. */
struct dssim_workload *dssim_workload_open(const char *text, char *error, size_t error_bytes);
void dssim_workload_close(struct dssim_workload *workload);

/* A dump configuration, for forecasts. Returns NULL if CANN would refuse it. The dump_path
 * need not exist. */
struct dump_config;
struct dump_config *dssim_config_open(const char *text);
void dssim_config_close(struct dump_config *config);

/* The forecast of one file: what a capture of it must contain. */
struct dssim_file {
    char name[ACL_DUMP_MAX_FILE_PATH_LENGTH];
    char fault[64]; /* names joined by '+', or empty */
    uint64_t bytes;
    uint64_t chunks;
};

/* The number of operators in a step, with the calls of single operators. They are numbered
 * from 0 on. */
uint64_t dssim_ops_per_step(const struct dssim_workload *workload);

/* Describes the file at `place`, from 0 on, among those that come after the operator. Unless
 * `out` is NULL, writes the `file->bytes` bytes of the file to it: payloads in the order of
 * delivery, or by their offsets if they have any; of statistics text one header row and all
 * rows, without NULs. Returns 0, -ENOENT if there is no such file, -ENAMETOOLONG or -ENOMEM. */
int dssim_file_describe(const struct dssim_workload *workload, const struct dump_config *config,
                        uint64_t step, uint64_t number, uint32_t place, struct dssim_file *file,
                        uint8_t *out);

/* The truth about one execution of an operator in a data flow: what it read and wrote. */

enum { DSSIM_TENSORS = 6, DSSIM_DIMS = 8, DSSIM_SOURCES = 2 };

enum { DSSIM_OPERATOR, DSSIM_LOADER, DSSIM_WEIGHT };

struct dssim_operand {
    uint64_t address;
    uint64_t bytes;
    uint64_t nans; /* of an input: before the operator ran */
    uint64_t infinities;
    uint64_t saturated; /* of an eight-bit type: elements that have the largest absolute value */
    uint32_t dtype;     /* OutputDataType of DumpData */
    uint32_t dims;
    uint64_t dim[DSSIM_DIMS];
    uint32_t in_place; /* of an input: an output takes its place */
    uint32_t
        injected; /* bits 1 << place in "nan,overflow,perturb,saturate"; of an input: those of its source */
    uint32_t sources; /* what it was written by; of an output always the operator itself */
    struct {
        uint32_t kind;
        uint32_t index; /* among the outputs of the operator */
        uint64_t op;    /* number in the step; of a weight: of the first operator that reads it */
    } source[DSSIM_SOURCES];
};

struct dssim_execution {
    char name[64];
    char type[64];
    uint64_t model;
    uint64_t task;
    uint64_t stream;
    uint32_t is_call;
    uint32_t is_collective;
    uint32_t is_undumped; /* whatever the configuration says */
    uint32_t inputs;
    uint32_t outputs;
    struct dssim_operand operand[DSSIM_TENSORS]; /* inputs first */
};

/* Returns 0, -EINVAL if the workload has no data flow, or -ENOMEM. */
int dssim_execution_describe(const struct dssim_workload *workload, uint64_t step, uint64_t number,
                             struct dssim_execution *execution);

/* The run. */

struct dssim_counters {
    uint64_t files;      /* that the device has sent completely */
    uint64_t delivered;  /* chunks that the callback took */
    uint64_t refused;    /* chunks that the callback refused: they are gone */
    uint64_t disk;       /* chunks written to disk, because no callback was registered */
    uint64_t lost;       /* chunks in flight when the dump was finalised, or that the disk had no space for */
    uint64_t ignored;    /* registrations while another callback was registered */
    uint64_t exceptions; /* files of exception dumps */
};

/* Waits for the device, then copies `workload` and makes it what runs, from step 0 on. */
void dssim_load(const struct dssim_workload *workload);

/* Loads the models now, under the configuration in force now. A later configuration does not
 * change what they dump, and they dump nothing after the dump is finalised. If no models are
 * loaded, every start loads them for itself. Calls of single operators follow the
 * configuration in force when they start. */
void dssim_load_models(void);
void dssim_unload_models(void);

/* Begins further steps on the device, after those that run, and returns. Nothing is dumped
 * unless a configuration is in force now. Returns 0 or -errno. */
int dssim_start(uint64_t steps);

/* Runs further steps and returns when the device has handed over its chunks.
 * Returns the number of files sent. */
uint64_t dssim_run(uint64_t steps);

/* Lets the device finish its current files at full speed. It begins no other file until the
 * next dssim_load. */
void dssim_stop(void);

void dssim_read_counters(struct dssim_counters *counters);

/* Ends everything and resets all state, as if the library had just been loaded. */
void dssim_reset(void);

#pragma GCC visibility pop
