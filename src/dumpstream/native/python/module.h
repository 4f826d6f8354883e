/* What the files of the extension share. Only this directory knows Python, and
 * no policy lives in it.
 *
 * A function that returns int returns 0, or -1 with an exception set. */
#ifndef DUMPSTREAM_PYTHON_MODULE_H
#define DUMPSTREAM_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "dumpstream/ring.h"

/* Objects */

void free_object(PyObject *self);
PyObject *make_object(PyTypeObject *type);
PyObject *raise_errno(int error);
PyObject *decode_name(const char *name, Py_ssize_t length);
int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **type);

/* Leases */

/* The runs of a data lane that are under lease, in order of position. Space is
 * freed in that order, whatever the order of the releases. */
struct runs {
    struct run *oldest;
    struct run *newest;
};

/* Frees the space of a ring before `position`. */
typedef void (*free_space_fn)(PyObject *ring, uint64_t position);

typedef struct {
    PyObject_HEAD PyObject *ring; /* whose the run is */
    struct runs *runs;            /* inside `ring` */
    free_space_fn free_space;
    struct run *run;
    uint8_t *copy; /* the chunks' bytes, from malloc; NULL if they lie in the ring */
    unsigned long long size;
    Py_ssize_t views;
    bool released;
} Lease;

/* Returns a lease on nothing yet. */
Lease *lease_new(PyObject *ring, struct runs *runs, free_space_fn free_space);

/* Puts the `size` bytes of ring space that end at `end` under the lease. */
int lease_begin(Lease *self, uint64_t size, uint64_t end);

/* Frees what can be freed; called when the lease is released and when a view ends. */
void lease_settle(Lease *self);

/* (chunks, losses, lease), or None if there is nothing in them. */
PyObject *lease_result(Lease *self, PyObject *chunks, PyObject *losses);

/* Chunks */

/* The name of the chunk before: chunks of one file follow each other, and one
 * str serves them all. Begins zeroed; `text` is owned. */
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

/* What the other files add. */
int add_lease(PyObject *module);
int add_chunk(PyObject *module);
int add_ring(PyObject *module);
int add_shared_ring(PyObject *module);
int add_statistics(PyObject *module);
PyObject *parse_header(PyObject *module, PyObject *data);
PyObject *use_kernels(PyObject *module, PyObject *args);

#endif
