/* The start of a dump file: a little-endian u64 with the length of a DumpData
 * message, the message, then the bytes of its segments. Only the sizes and
 * addresses are read here. */
#ifndef DUMPSTREAM_HEADER_H
#define DUMPSTREAM_HEADER_H

#include <stddef.h>
#include <stdint.h>

enum ds_header_state {
    DS_HEADER_WHOLE,   /* the header was read */
    DS_HEADER_PARTIAL, /* what is there may be the beginning of one */
    DS_HEADER_NONE,    /* this is no dump header */
};

struct ds_header {
    /* WHOLE: the file's length with every segment. PARTIAL: how many bytes the
     * header has, 0 if that is not known yet. Saturates instead of wrapping. */
    uint64_t total;
    /* WHOLE: the length without tensors whose address is null, where at least
     * one tensor has an address; otherwise the same as total. */
    uint64_t present;
};

/* Reads `length` untrusted bytes from the start of a file. */
enum ds_header_state ds_header_read(const uint8_t *bytes, size_t length, struct ds_header *header);

#endif
