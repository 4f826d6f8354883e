#include "small_files.h"

#include <stdlib.h>
#include <unistd.h>

void release_items(struct items *items) {
    for (Py_ssize_t i = 0; i < items->count; i++) {
        if (items->item[i].path)
            Py_DECREF(items->item[i].path);
        else
            PyBuffer_Release(&items->item[i].view);
    }
    free(items->item);
}

static int take_item(PyObject *object, struct item *item) {
    if (!PyUnicode_Check(object))
        return PyObject_GetBuffer(object, &item->view, PyBUF_SIMPLE);
    if (!PyUnicode_FSConverter(object, &item->path))
        return -1;
    item->text = PyBytes_AsString(item->path);
    return 0;
}

int take_items(PyObject *list, struct items *items) {
    Py_ssize_t count = PyList_Size(list);
    *items = (struct items){calloc((size_t)count + 1, sizeof *items->item), 0};
    if (!items->item) {
        PyErr_NoMemory();
        return -1;
    }
    for (; items->count < count; items->count++) {
        if (take_item(PyList_GetItem(list, items->count), &items->item[items->count]) != 0) {
            release_items(items);
            return -1;
        }
    }
    return 0;
}

struct reading {
    struct ds_last_directory last;
    uint8_t buffer[DS_SMALL_FILE + 1];
};

struct reading *begin_reading(void) {
    struct reading *reading = malloc(sizeof *reading);
    if (reading)
        reading->last.fd = -1;
    return reading;
}

void end_reading(struct reading *reading) {
    if (reading && reading->last.fd >= 0)
        close(reading->last.fd);
    free(reading);
}

const uint8_t *read_item(const struct item *item, struct reading *reading, size_t *length) {
    if (!item->path) {
        *length = (size_t)item->view.len;
        return item->view.buf;
    }
    ssize_t taken = ds_read_small_file(&reading->last, item->text, reading->buffer);
    *length = taken < 0 ? 0 : (size_t)taken;
    return taken < 0 ? NULL : reading->buffer;
}
