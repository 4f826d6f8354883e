/* scan_journal, hash_name: the lines of a journal as records. */
#include "dumpstream/journal.h"

#include <stdlib.h>
#include <string.h>

#include "module.h"

#define MOST_VERDICTS 16

static int read_key(const char *bytes, Py_ssize_t size, struct ds_journal_key *key) {
    if (size != sizeof *key) {
        PyErr_SetString(PyExc_ValueError, "a key has 16 bytes");
        return -1;
    }
    memcpy(key, bytes, sizeof *key);
    return 0;
}

static int read_verdicts(PyObject *words, const char **verdicts) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(words); i++) {
        verdicts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(words, i), NULL);
        if (!verdicts[i])
            return -1;
    }
    return 0;
}

PyObject *scan_journal(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer block;
    const char *key_bytes, *needle, *verdicts[MOST_VERDICTS];
    Py_ssize_t key_size, needle_size;
    PyObject *words;
    if (!PyArg_ParseTuple(args, "y*y#O!y#", &block, &key_bytes, &key_size, &PyTuple_Type, &words, &needle,
                          &needle_size))
        return NULL;
    struct ds_journal_key key;
    struct ds_journal_lines found = {0};
    PyObject *result = NULL;
    if (PyTuple_Size(words) > MOST_VERDICTS)
        PyErr_SetString(PyExc_ValueError, "too many verdicts");
    else if (read_key(key_bytes, key_size, &key) == 0 && read_verdicts(words, verdicts) == 0) {
        int error;
        Py_BEGIN_ALLOW_THREADS;
        error = ds_journal_scan(block.buf, (size_t)block.len, key, needle, (size_t)needle_size, verdicts,
                                (uint32_t)PyTuple_Size(words), &found);
        Py_END_ALLOW_THREADS;
        result = error ? PyErr_NoMemory()
                       : PyBytes_FromStringAndSize((const char *)found.lines,
                                                   (Py_ssize_t)(found.count * sizeof *found.lines));
        free(found.lines);
    }
    PyBuffer_Release(&block);
    return result;
}

PyObject *hash_name(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name, *key_bytes;
    Py_ssize_t size, key_size;
    struct ds_journal_key key;
    if (!PyArg_ParseTuple(args, "y#y#", &name, &size, &key_bytes, &key_size) ||
        read_key(key_bytes, key_size, &key) != 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(ds_journal_hash(name, (size_t)size, key));
}
