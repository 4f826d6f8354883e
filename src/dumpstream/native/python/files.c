/* new_files, rename_noreplace, sync_filesystem: what Python's os module does not have. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dumpstream/newfile.h"
#include "module.h"

struct new_file {
    PyObject *name;   /* bytes, */
    const char *text; /* of which this is the text */
    Py_buffer content;
};

static void release(struct new_file *files, Py_ssize_t count) {
    while (count-- > 0) {
        PyBuffer_Release(&files[count].content);
        Py_DECREF(files[count].name);
    }
    free(files);
}

/* Returns one for each of `names` and `contents`, both lists of `count` items, or NULL. */
static struct new_file *read_files(PyObject *names, PyObject *contents, Py_ssize_t count) {
    struct new_file *files = calloc((size_t)count + 1, sizeof *files);
    if (!files) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyUnicode_FSConverter(PyList_GetItem(names, i), &files[i].name)) {
            release(files, i);
            return NULL;
        }
        files[i].text = PyBytes_AsString(files[i].name);
        if (PyObject_GetBuffer(PyList_GetItem(contents, i), &files[i].content, PyBUF_SIMPLE) != 0) {
            Py_DECREF(files[i].name);
            release(files, i);
            return NULL;
        }
    }
    return files;
}

PyObject *new_files(PyObject *Py_UNUSED(module), PyObject *args) {
    int dir_fd;
    PyObject *names, *contents;
    if (!PyArg_ParseTuple(args, "iO!O!", &dir_fd, &PyList_Type, &names, &PyList_Type, &contents))
        return NULL;
    Py_ssize_t count = PyList_Size(names), made = 0;
    if (PyList_Size(contents) != count) {
        PyErr_SetString(PyExc_ValueError, "every name needs a content");
        return NULL;
    }
    struct new_file *files = read_files(names, contents, count);
    if (!files)
        return NULL;
    int error = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (; made < count; made++) {
        const struct new_file *file = &files[made];
        error = ds_new_file(dir_fd, file->text, file->content.buf, (size_t)file->content.len);
        if (error)
            break;
    }
    Py_END_ALLOW_THREADS;
    release(files, count);
    return Py_BuildValue("(ni)", made, -error);
}

PyObject *rename_noreplace(PyObject *Py_UNUSED(module), PyObject *args) {
    int from_fd, to_fd;
    PyObject *from, *to;
    if (!PyArg_ParseTuple(args, "iO&iO&", &from_fd, PyUnicode_FSConverter, &from, &to_fd,
                          PyUnicode_FSConverter, &to))
        return NULL;
    const char *from_name = PyBytes_AsString(from), *to_name = PyBytes_AsString(to);
    int error = 0;
    Py_BEGIN_ALLOW_THREADS;
    if (renameat2(from_fd, from_name, to_fd, to_name, RENAME_NOREPLACE) != 0)
        error = -errno;
    /* Not every file system has the flag. A hard link never replaces a file either. */
    if (error == -EINVAL || error == -ENOSYS) {
        error = linkat(from_fd, from_name, to_fd, to_name, 0) != 0 ? -errno : 0;
        if (!error && unlinkat(from_fd, from_name, 0) != 0)
            error = -errno;
    }
    Py_END_ALLOW_THREADS;
    Py_DECREF(from);
    Py_DECREF(to);
    if (error)
        return raise_errno(error);
    Py_RETURN_NONE;
}

PyObject *sync_filesystem(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd, failed;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    failed = syncfs(fd);
    Py_END_ALLOW_THREADS;
    if (failed)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
