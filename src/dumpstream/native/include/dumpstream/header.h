/* The start of a dump file: a little-endian u64 with the length of a DumpData
 * message, the message, then the bytes of its segments. Small devices write a
 * header of their own instead of the message; both are read as if they were one.
 * `ds_header_read` looks at the sizes and addresses only; `ds_dump_data_next` reads
 * the message in full. Both take untrusted bytes, and neither allocates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ds_header_state {
    DS_HEADER_WHOLE,   /* the header was read */
    DS_HEADER_PARTIAL, /* the bytes may be the beginning of a header */
    DS_HEADER_NONE,    /* the bytes are not a dump header */
};

struct ds_header {
    /* WHOLE: the length of the file with every segment. PARTIAL: the length of the
     * header, 0 if that is not known yet. Saturates instead of wrapping. */
    uint64_t total;
    /* WHOLE: the length without the tensors that have a null address, if at least
     * one tensor has an address; otherwise, and with a small device's header, the
     * same as total. */
    uint64_t present;
};

/* Reads `length` untrusted bytes from the start of a file. */
enum ds_header_state ds_header_read(const uint8_t *bytes, size_t length, struct ds_header *header);

/* CANN stops at 25 dimensions, numpy 1 at 32. */
#define DS_MAX_DIMS 32
/* Segments and attributes together: each one takes far more memory than its bytes. */
#define DS_MAX_ENTRIES 65536

/* Bytes inside the message. */
struct ds_span {
    const uint8_t *at;
    size_t length;
};

struct ds_dims {
    uint32_t count;
    uint64_t dim[DS_MAX_DIMS];
};

/* The messages that keep their unknown fields. The first four are segments, in the
 * order of their bytes in a file. */
enum ds_message_kind { DS_INPUT, DS_OUTPUT, DS_BUFFER, DS_SPACE, DS_DUMP_DATA };

/* A field that the message does not have is 0, as in protobuf. */
struct ds_segment {
    enum ds_message_kind kind;
    int32_t type; /* of a buffer or a space */
    int32_t data_type;
    int32_t format;
    int32_t sub_format;
    uint32_t arg_index;
    uint32_t input_type;
    uint64_t size;
    uint64_t address;
    uint64_t offset;
    struct ds_dims shape;
    struct ds_dims original_shape;
    struct ds_dims range_start; /* as many as range_end */
    struct ds_dims range_end;
    struct {
        bool present;
        struct ds_span name;
        uint32_t output_index;
        int32_t data_type;
        int32_t format;
    } original_op;
    struct ds_span data; /* version 1 only: the bytes of the segment */
    struct ds_span message;
    bool any_unknown;
};

enum ds_entry_kind {
    DS_ENTRY_UNKNOWN, /* `ds_unknown_fields` returns them all */
    DS_ENTRY_TIME,
    DS_ENTRY_VERSION,
    DS_ENTRY_OP_NAME,
    DS_ENTRY_DFX_MESSAGE,
    DS_ENTRY_ATTRIBUTE,
    DS_ENTRY_INPUT, /* these four in the order of ds_message_kind */
    DS_ENTRY_OUTPUT,
    DS_ENTRY_BUFFER,
    DS_ENTRY_SPACE,
};

/* One field of DumpData. */
struct ds_entry {
    enum ds_entry_kind kind;
    uint64_t time;
    struct ds_span text; /* a version, name or message; the name of an attribute */
    struct ds_span value;
    struct ds_segment segment;
};

/* A DumpData message that is being read. */
struct ds_dump_data {
    const uint8_t *begin;
    const uint8_t *at;
    const uint8_t *end;
    uint32_t entries;
    const char *fault; /* NULL while nothing is wrong */
    size_t fault_position;
    bool small;                 /* it is the header of a small device, ... */
    uint32_t left;              /* ... of whose block so many tensors are not read, ... */
    enum ds_message_kind block; /* ... all of this kind, ... */
    const uint8_t *block_end;   /* ... up to here */
};

void ds_dump_data_begin(struct ds_dump_data *message, const uint8_t *bytes, size_t length);

/* Reads the next field; false at the end, or with `fault` set. A field that should
 * come once but comes again replaces the earlier one. */
bool ds_dump_data_next(struct ds_dump_data *message, struct ds_entry *entry);

/* Returns the length of the fields of `message` that its kind does not know, and
 * copies them to `out` unless that is NULL. The message must have been read without
 * a fault. */
size_t ds_unknown_fields(enum ds_message_kind kind, struct ds_span message, uint8_t *out);
