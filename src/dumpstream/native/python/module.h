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

/* Objects */

void free_object(PyObject *self);
PyObject *make_object(PyTypeObject *type);
PyObject *raise_errno(int error);
PyObject *decode_name(const char *name, Py_ssize_t length);
int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **type);

/* Appends `item`, a new reference; or fails if it is NULL with an exception set. */
int append_new(PyObject *list, PyObject *item);

/* Leases */

typedef struct AnyRing AnyRing;

typedef struct {
    PyObject_HEAD AnyRing *ring;
    struct run *run;
    uint8_t *copy; /* the bytes of the chunks, from malloc; NULL: they are in the ring */
    unsigned long long size;
    Py_ssize_t views;
    bool released;
} Lease;

/* Returns a lease that holds nothing yet. */
Lease *lease_new(AnyRing *ring);

/* Puts the `size` bytes of ring space that end at `end` under the lease. */
int lease_begin(Lease *self, uint64_t size, uint64_t end);

/* Frees what can be freed. To be called when the lease is released and when a view ends. */
void lease_settle(Lease *self);

/* (chunks, losses, lease), or None if all are empty. */
PyObject *lease_result(Lease *self, PyObject *chunks, PyObject *losses);

/* Chunks */

/* The name of the previous chunk. Chunks of one file follow each other, and share one str.
 * Begins zeroed; the caller owns `text`. */
struct chunk_name {
    PyObject *text;
    const char *raw;
    uint32_t length;
};

int append_chunk(PyObject *chunks, Lease *lease, const struct ds_view *view, struct chunk_name *name);

/* Losses */

extern const char *const CAUSE_NAMES[DS_CAUSE_COUNT];

int append_loss(PyObject *losses, PyObject *name, enum ds_cause cause, uint64_t bytes, bool ended);
int append_note(PyObject *losses, const struct ds_view *note);

/* What `statistics` of a ring with a data lane of `size` returns. */
PyObject *counters_tuple(uint64_t size, const struct ds_counters *counters);

/* Rings */

/* The runs of a data lane that are under lease, in order of position. Space is
 * freed in that order, whatever the order of the releases. */
struct runs {
    struct run *oldest;
    struct run *newest;
};

/* What the objects of both kinds begin with. */
struct AnyRing {
    PyObject_HEAD struct ds_ring *ring;
    struct ds_reader *reader; /* what `ring` is part of; NULL: this process's callback fills the ring */
    struct runs runs;
    pid_t pid;
    bool open;
    bool busy; /* another thread is inside `lease`, without the GIL */
};

/* Makes a ring; called without the GIL. Returns 0 or -errno. */
typedef int (*create_fn)(AnyRing *self, uint64_t size, const char *path);

/* `__new__(size, *, path=None)` */
PyObject *any_ring_new(PyTypeObject *type, create_fn create, PyObject *args, PyObject *kwargs);

/* Returns the new ring, or raises the `error`. */
PyObject *any_ring_made(AnyRing *self, int error);

/* Sets an error and returns false if the ring cannot be used now and here. */
bool any_ring_usable(const AnyRing *self);

/* Frees the space before `position`. */
void any_ring_free(AnyRing *self, uint64_t position);

/* Takes losses and at most `most` chunks, and puts the chunks under the lease. */
int ring_fill_lease(AnyRing *self, Lease *lease, PyObject *chunks, PyObject *losses, Py_ssize_t most,
                    uint64_t bytes);
int shared_ring_fill_lease(AnyRing *self, Lease *lease, PyObject *chunks, PyObject *losses, Py_ssize_t most,
                           uint64_t bytes);

PyObject *any_ring_lease(AnyRing *self, PyObject *args);
PyObject *any_ring_arm(AnyRing *self, PyObject *args);
PyObject *any_ring_disarm(AnyRing *self, PyObject *ignored);
PyObject *any_ring_discard(AnyRing *self, PyObject *ignored);
PyObject *any_ring_fileno(AnyRing *self, PyObject *ignored);
PyObject *any_ring_statistics(AnyRing *self, PyObject *ignored);

/* The methods that both kinds have. */
#define ANY_RING_METHODS                                                                                     \
    {"lease", (PyCFunction)any_ring_lease, METH_VARARGS, NULL},                                              \
        {"arm", (PyCFunction)any_ring_arm, METH_VARARGS, NULL},                                              \
        {"disarm", (PyCFunction)any_ring_disarm, METH_NOARGS, NULL},                                         \
        {"discard", (PyCFunction)any_ring_discard, METH_NOARGS, NULL},                                       \
        {"fileno", (PyCFunction)any_ring_fileno, METH_NOARGS, NULL}, {                                       \
        "statistics", (PyCFunction)any_ring_statistics, METH_NOARGS, NULL                                    \
    }

/* What the other files add. */
int add_lease(PyObject *module);
int add_chunk(PyObject *module);
int add_ring(PyObject *module);
int add_shared_ring(PyObject *module);
int add_statistics(PyObject *module);
int add_tensor_rows(PyObject *module);
PyObject *parse_header(PyObject *module, PyObject *data);
PyObject *measure_files(PyObject *module, PyObject *args);
PyObject *scan_journal(PyObject *module, PyObject *args);
PyObject *hash_name(PyObject *module, PyObject *args);
PyObject *use_kernels(PyObject *module, PyObject *args);
