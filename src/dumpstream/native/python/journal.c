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

/* Scans without the GIL. `*found`, which the caller frees, is empty after a failure. */
static int scan(const Py_buffer *block, struct ds_journal_key key, PyObject *words, const char *needle,
                Py_ssize_t needle_size, struct ds_journal_lines *found) {
    const char *verdicts[MOST_VERDICTS];
    *found = (struct ds_journal_lines){0};
    if (PyTuple_Size(words) > MOST_VERDICTS) {
        PyErr_SetString(PyExc_ValueError, "too many verdicts");
        return -1;
    }
    if (read_verdicts(words, verdicts) != 0)
        return -1;
    uint32_t count = (uint32_t)PyTuple_Size(words);
    int error;
    Py_BEGIN_ALLOW_THREADS;
    error = ds_journal_scan(block->buf, (size_t)block->len, key, needle, (size_t)needle_size, verdicts, count,
                            found);
    Py_END_ALLOW_THREADS;
    if (error)
        PyErr_NoMemory();
    return error ? -1 : 0;
}

PyObject *scan_journal(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer block;
    const char *key_bytes, *needle;
    Py_ssize_t key_size, needle_size;
    PyObject *words;
    if (!PyArg_ParseTuple(args, "y*y#O!y#", &block, &key_bytes, &key_size, &PyTuple_Type, &words, &needle,
                          &needle_size))
        return NULL;
    struct ds_journal_key key;
    struct ds_journal_lines found = {0};
    PyObject *result = NULL;
    if (read_key(key_bytes, key_size, &key) == 0 &&
        scan(&block, key, words, needle, needle_size, &found) == 0)
        result = PyBytes_FromStringAndSize((const char *)found.lines,
                                           (Py_ssize_t)(found.count * sizeof *found.lines));
    free(found.lines);
    PyBuffer_Release(&block);
    return result;
}

static PyObject *summary_of(const char *block, const struct ds_journal_line *line, PyObject *words) {
    PyObject *step = line->has_step ? PyLong_FromUnsignedLongLong(line->step) : Py_NewRef(Py_None);
    return Py_BuildValue("(s#OKKKizN)", block + line->start + DS_JOURNAL_NAME, (Py_ssize_t)line->name_length,
                         PyTuple_GetItem(words, (Py_ssize_t)line->verdict), (unsigned long long)line->bytes,
                         (unsigned long long)line->stored_bytes, (unsigned long long)line->chunks,
                         line->stored != 0, line->is_filtered ? "filtered" : NULL, step);
}

PyObject *summarise_journal(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer block;
    PyObject *words;
    if (!PyArg_ParseTuple(args, "y*O!", &block, &PyTuple_Type, &words))
        return NULL;
    struct ds_journal_lines found = {0};
    PyObject *common = PyList_New(0), *others = PyList_New(0);
    int failed = !common || !others || scan(&block, (struct ds_journal_key){0}, words, NULL, 0, &found) != 0;
    for (size_t i = 0; !failed && i < found.count; i++) {
        const struct ds_journal_line *line = &found.lines[i];
        failed = line->is_common ? append_new(common, summary_of(block.buf, line, words))
                                 : append_new(others, Py_BuildValue("(nKK)", PyList_Size(common),
                                                                    (unsigned long long)line->start,
                                                                    (unsigned long long)line->length));
    }
    free(found.lines);
    PyBuffer_Release(&block);
    PyObject *result = failed ? NULL : Py_BuildValue("(OO)", common, others);
    Py_XDECREF(common);
    Py_XDECREF(others);
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
