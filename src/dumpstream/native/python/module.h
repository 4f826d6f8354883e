/* What the files of the extension share. Only this directory uses Python, and it
 * decides nothing.
 *
 * A function that returns int returns 0, or -1 with an exception set. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dumpstream/reader.h"
#include "dumpstream/statistics.h"

/* Objects */

void free_object(PyObject *self);
PyObject *raise_errno(int error);
PyObject *decode_name(const char *name, Py_ssize_t length);
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec);

/* Appends `item`, a new reference; or fails if it is NULL with an exception set. */
int append_new(PyObject *list, PyObject *item);

/* A new reference to the bytes of an array. */
PyObject *bytes_of(const void *array, size_t count, size_t item);

/* Records */

/* A field of a record, for numpy. */
struct record_field {
    const char *name;
    const char *format;
    size_t offset;
};

/* Adds the layout of a record of `size` bytes to the module. */
int add_layout(PyObject *module, const char *name, const struct record_field *fields, size_t count,
               size_t size);

/* Rings */

/* A Ring or a SharedRing. */
typedef struct {
    PyObject_HEAD struct ds_reader reader;
    /* What is under lease, in order of position. Space is freed in that order, whatever the
     * order of the releases. */
    struct run *oldest, *newest;
    pid_t pid;
    bool open;
    bool busy; /* another thread is inside `lease`, without the GIL */
    bool attached;
    bool stuck;    /* a call never left the ring, which therefore stays mapped */
    bool lent;     /* a Ring that another process made and reads */
    int reader_fd; /* of a lent ring: a pidfd of that process */
} Ring;

/* Leases */

typedef struct {
    PyObject_HEAD Ring *ring;
    struct run *run;
    uint8_t *copy; /* the bytes of the chunks, from malloc; NULL: they are in the ring */
    unsigned long long size;
    long long step; /* of the chunks, or DS_NO_STEP */
    Py_ssize_t views;
    bool released;
} Lease;

/* Takes losses and at most `most` chunks: (chunks, losses, lease, step), or None if all are
 * empty. The losses are older than the chunks, and than the step if it is a new one. */
PyObject *lease_take(Ring *ring, Py_ssize_t most, uint64_t bytes);

/* Frees what can be freed. To be called when the lease is released and when a view ends. */
void lease_settle(Lease *self);

/* Chunks */

/* Appends at most `most` chunks and moves `*position` past them. */
int append_chunks(PyObject *chunks, Lease *lease, Py_ssize_t most, const struct ds_records *records,
                  uint64_t *position);

/* Losses */

extern const char *const CAUSE_NAMES[DS_CAUSE_COUNT];

/* Kinds of elements */

/* Finds the kind `name`, with a table (or None) that it can use. */
int find_kind(const char *name, PyObject *table, enum ds_kind *kind);
/* Copies the doubles of `table` to `values`. If `repeated`, 2^n of them fill all `size` places. */
int read_table(PyObject *table, size_t size, bool repeated, double *values);
/* Reads how the elements of one side of a comparison are read. */
struct ds_side;
int read_side(PyObject *tuple, struct ds_side *side);
/* A new reference. */
PyObject *exact_integer(__int128 value);

/* What the other files add. */
int add_lease(PyObject *module);
int add_chunk(PyObject *module);
int add_rings(PyObject *module);
int add_statistics(PyObject *module);
int add_comparison(PyObject *module);
int add_tensor_rows(PyObject *module);
int add_file_pairs(PyObject *module);
int add_operator_names(PyObject *module);
int add_codec(PyObject *module);
PyObject *parse_header(PyObject *module, PyObject *data);
PyObject *measure_files(PyObject *module, PyObject *args);
PyObject *count_tensors(PyObject *module, PyObject *files);
PyObject *compare_files(PyObject *module, PyObject *args);
PyObject *count_segments(PyObject *module, PyObject *paths);
PyObject *list_operators(PyObject *module, PyObject *args);
PyObject *file_sizes(PyObject *module, PyObject *args);
PyObject *scan_journal(PyObject *module, PyObject *args);
PyObject *summarise_journal(PyObject *module, PyObject *args);
PyObject *hash_name(PyObject *module, PyObject *args);
PyObject *new_files(PyObject *module, PyObject *args);
PyObject *new_npy_files(PyObject *module, PyObject *args);
PyObject *rename_noreplace(PyObject *module, PyObject *args);
PyObject *sync_filesystem(PyObject *module, PyObject *args);
PyObject *layout_of(PyObject *module, PyObject *data);
PyObject *encoded_bound(PyObject *module, PyObject *length);
PyObject *crc32_of(PyObject *module, PyObject *data);
PyObject *has_libzstd(PyObject *module, PyObject *ignored);
PyObject *hide_libzstd(PyObject *module, PyObject *hidden);
PyObject *use_kernels(PyObject *module, PyObject *args);
