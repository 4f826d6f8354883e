/* Everything the simulated runtime exports: CANN's dump entry points, with
 * CANN's codes and habits, and the functions that drive the simulation.
 *
 * One runtime per process, as with CANN. Every function may be called from
 * any thread. Only the record thread calls the registered callback. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dumpstream/acl_abi.h>

#include "prof/abi.h"

#define DSSIM_API __attribute__((visibility("default")))

/* CANN's entry points; those of profiling are in prof_abi.h. */

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

DSSIM_API aclError aclInit(const char *config_path);
DSSIM_API aclError aclFinalize(void);
DSSIM_API aclError aclFinalizeReference(uint64_t *references);
DSSIM_API aclError aclmdlInitDump(void);
DSSIM_API aclError aclmdlSetDump(const char *config_path);
DSSIM_API aclError aclmdlFinalizeDump(void);
DSSIM_API aclError acldumpRegCallback(acldumpCallback callback, int32_t flag);
DSSIM_API void acldumpUnregCallback(void);
DSSIM_API const char *acldumpGetPath(acldumpType type);
DSSIM_API aclError acldumpSaveExceptionInfo(const char *name, const char *user_tag,
                                            const acldumpTensorInfo *tensors, size_t count);
DSSIM_API aclError acldumpGetExceptionInfoPath(char *path, size_t bytes);
DSSIM_API aclError aclopStartDumpArgs(uint32_t dump_type, const char *path);
DSSIM_API aclError aclopStopDumpArgs(uint32_t dump_type);
DSSIM_API aclError aclrtSetDevice(int32_t device);
DSSIM_API aclError aclrtGetDevice(int32_t *device);
DSSIM_API aclError aclrtResetDevice(int32_t device);
DSSIM_API aclError aclrtGetCurrentContext(void **context);
DSSIM_API aclError aclrtSetCurrentContext(void *context);

/* Waits for the device only: chunks may still be queued for the record
 * thread. aclmdlFinalizeDump delivers those. */
DSSIM_API aclError aclrtSynchronizeDevice(void);

/* Workloads: what the simulated models dump.
 *
 * The text has one key=value per line; a key left out has its default, and
 * of a key given twice the last counts.
 *
 *   seed                the same seed gives the same names and bytes (0)
 *   models, ops         models, and operators of each (2, 8)
 *   single_ops          calls of single operators in each step (0)
 *   op_types            of the operators of a model in turn, joined by '+' (eight); a Data operator
 *                       feeds the next one, Hcom... is a collective
 *   inputs, outputs     tensors of each operator (2, 1)
 *   io_files            joint or separate: whether dump_mode all gives one file or two; calls and
 *                       collectives always give two (joint)
 *   overwrite           A:C or A:C@STEP: operator A of every model writes over the first output of
 *                       the earlier operator C, which shows in what is dumped of C from then on
 *   opdebug             older or newer: the layout of overflow records (older)
 *   stats_by            kernel or aicpu: who makes statistics (kernel)
 *   tensor_bytes        N, or LOW-HIGH for a seeded size of each tensor (1024-65536)
 *   shape               such as 8x128, for all tensors, instead of tensor_bytes
 *   dtypes              names joined by '+'; one named twice comes twice as often (all six, once)
 *   device_threads      threads that produce chunks (2)
 *   device_id           as it appears in file names (0)
 *   rate                bytes per second over all device threads; 0 is as fast as they can (0)
 *   slice_bytes         longest payload of a chunk (134217728, as CANN's)
 *   queue_bytes         device threads wait while more is queued; 0 is no bound, as CANN's (0)
 *   cann                8.5, 9.1 or master: 8.5 does not join the record thread in aclmdlFinalizeDump;
 *                       master starts profiling without aclprofInit and forgives what was not begun (9.1)
 *
 * and the faults, each with a selector: a share with a decimal point (0.25),
 * an operator of every model (3), or that at one step (3@1).
 *
 *   nan                 NaN in the first output, made float32 if it could not hold one
 *   overflow            infinity in the first output, likewise; the operator overflows
 *   fails               the operator fails, which an exception dump shows
 *   missing_last        all bytes, but no chunk is marked last
 *   truncated           the final slice, or half of an only one, never comes, nor a last mark
 *   resend_slice        one slice comes twice, the final one only if there is no other
 *   header_only         the header promises tensors, no byte of them comes
 *   null_address        the first tensor has no address: its bytes are promised and left out
 *   stats_text          statistics text in several messages, each marked last and ending in NUL
 *   offsets             chunks carry real offsets
 *   shuffle             so, and they come in shuffled order
 *
 * offsets or shuffle may meet one of the others in a file, but not stats_text.
 * Of the others the first of stats_text, header_only, null_address,
 * truncated, missing_last, resend_slice, nan, overflow, fails that selects a file applies. */
struct dssim_workload;

/* Returns NULL and one line of explanation in `error` if the text is wrong. */
DSSIM_API struct dssim_workload *dssim_workload_open(const char *text, char *error, size_t error_bytes);
DSSIM_API void dssim_workload_close(struct dssim_workload *workload);

/* A dump configuration, for forecasts. Returns NULL if CANN would refuse it;
 * whether its dump_path exists does not matter. */
struct dump_config;
DSSIM_API struct dump_config *dssim_config_open(const char *text);
DSSIM_API void dssim_config_close(struct dump_config *config);

/* What must come out of a capture of one file, known without running it. */
struct dssim_file {
    char name[ACL_DUMP_MAX_FILE_PATH_LENGTH];
    char fault[64]; /* names joined by '+'; empty if none */
    uint64_t bytes;
    uint64_t chunks;
};

/* Operators of a step, calls of single ones included, have the numbers 0 to
 * this, exclusive. */
DSSIM_API uint64_t dssim_ops_per_step(const struct dssim_workload *workload);

/* Describes the file at `place`, from 0 on, among those that come after the
 * operator, and writes its `file->bytes` bytes to `out` unless that is NULL:
 * its payloads in the order of delivery, or by their offsets if they carry
 * any; of statistics text one header row and all rows, without NULs. Returns
 * 0, -ENOENT if there is no such file, -ENAMETOOLONG or -ENOMEM. */
DSSIM_API int dssim_file_describe(const struct dssim_workload *workload, const struct dump_config *config,
                                  uint64_t step, uint64_t number, uint32_t place, struct dssim_file *file,
                                  uint8_t *out);

/* The run. */

struct dssim_counters {
    uint64_t files;      /* sent to the end by the device */
    uint64_t delivered;  /* chunks the callback took */
    uint64_t refused;    /* chunks it answered with nonzero: gone */
    uint64_t disk;       /* chunks written to disk, as nothing was registered */
    uint64_t lost;       /* chunks in flight when the dump was finalised, or that the disk did not take */
    uint64_t ignored;    /* registrations while another was in place */
    uint64_t exceptions; /* files of exception dumps */
};

/* Waits for the device, then makes `workload` (copied) what runs, from step 0. */
DSSIM_API void dssim_load(const struct dssim_workload *workload);

/* Loads the models now, under the configuration in force now: a later one does
 * not change what they dump, nor does anything come after the dump is
 * finalised. Without loaded models every start loads them for itself. Calls of
 * single operators follow the configuration in force when they start. */
DSSIM_API void dssim_load_models(void);
DSSIM_API void dssim_unload_models(void);

/* Runs further steps on the device and returns at once. Nothing is dumped
 * unless a configuration is in force now. Returns 0 or -errno. */
DSSIM_API int dssim_start(uint64_t steps);

/* Runs further steps and returns when the device has handed over its chunks.
 * Returns the number of files sent. */
DSSIM_API uint64_t dssim_run(uint64_t steps);

/* Lets the device finish the files it is in, at full speed, and begin none
 * until the next dssim_load. */
DSSIM_API void dssim_stop(void);

DSSIM_API void dssim_read_counters(struct dssim_counters *counters);

/* Ends everything and forgets it, as if the library had just been loaded. */
DSSIM_API void dssim_reset(void);
