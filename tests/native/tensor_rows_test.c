/* Rows of whole files, with untrusted bytes. Each file lies in memory of exactly its length,
 * so that the address sanitizer sees a read past its end. */
#include "dumpstream/tensor_rows.h"

#include <string.h>

#include "check.h"
#include "random.h"

#define MUTATIONS 200000u

enum { UNDEFINED = 0, FLOAT = 1, INT32 = 7, UINT64 = 10, COMPLEX64 = 16 };

static const struct ds_reading READINGS[DS_DATA_TYPES] = {
    [UNDEFINED] = {true, DS_I1, 1}, [FLOAT] = {true, DS_F4, 1},     [INT32] = {true, DS_I4, 1},
    [UINT64] = {true, DS_U8, 1},    [COMPLEX64] = {true, DS_F4, 2},
};

/* As in CANN, the output comes before the inputs in the message, and after them in the file. */
static const uint8_t MESSAGE[] = {
    0x0a, 3,  '2',  '.', '0',                /* version */
    0x1a, 13,                                /* output, of which: */
    0x08, 7,  0x10, 29,                      /*   data_type, format */
    0x1a, 3,  0x0a, 1,   2,                  /*   shape */
    0x30, 9,  0x48, 5,                       /*   size, one byte more than needed, and address */
    0x22, 20,                                /* input, of which: */
    0x08, 1,  0x10, 2,                       /*   data_type, format */
    0x1a, 4,  0x0a, 2,   1,    2,            /*   shape */
    0x32, 4,  0x0a, 2,   2,    1,            /*   original_shape */
    0x28, 8,  0x40, 5,                       /*   size, address */
    0x22, 6,  0x08, 10,  0x28, 8,   0x40, 5, /* input without a shape: data_type, size, address */
    0x2a, 2,  0x18, 4,                       /* buffer: size */
    0x32, 4,  'c',  'o', 'n',  'v',          /* op_name */
};
static const uint8_t DATA[] = {
    0,   0,   0x80, 0x3f, 0,   0,   0,   0xc0,     /* input 0: 1 and -2 */
    255, 255, 255,  255,  255, 255, 255, 255,      /* input 1: the largest */
    3,   0,   0,    0,    252, 255, 255, 255,  99, /* output 0: 3, -4 and padding */
    1,   2,   3,    4,                             /* buffer 0 */
};
/* Their positions in MESSAGE. */
enum { INPUT_TYPE = 23, INPUT_DIM = 30, INPUT_1_ADDRESS = sizeof MESSAGE - 11 };

#define FILE_BYTES (8 + sizeof MESSAGE + sizeof DATA)

static void make_file(uint8_t file[FILE_BYTES]) {
    memset(file, 0, 8);
    file[0] = sizeof MESSAGE;
    memcpy(file + 8, MESSAGE, sizeof MESSAGE);
    memcpy(file + 8 + sizeof MESSAGE, DATA, sizeof DATA);
}

/* Adds a copy of exactly `length` bytes. */
static int add_exactly(struct ds_tensor_rows *rows, const uint8_t *bytes, size_t length) {
    uint8_t *exact = malloc(length ? length : 1);
    CHECK(exact);
    memcpy(exact, bytes, length);
    int result = ds_tensor_rows_add(rows, exact, length);
    free(exact);
    return result;
}

static void check_place(const struct ds_tensor_row *row, enum ds_message_kind io, uint32_t index,
                        uint64_t start, uint64_t taken) {
    CHECK(row->stored);
    CHECK_EQUAL(row->io, io);
    CHECK_EQUAL(row->index, index);
    CHECK_EQUAL(row->start, 8 + sizeof MESSAGE + start);
    CHECK_EQUAL(row->taken, taken);
}

static void rows_are_in_the_order_of_the_bytes(void) {
    uint8_t file[FILE_BYTES];
    struct ds_tensor_rows rows;
    make_file(file);
    ds_tensor_rows_init(&rows, READINGS);

    CHECK_EQUAL(add_exactly(&rows, file, sizeof file), 1);

    CHECK_EQUAL(rows.count, 4);
    check_place(&rows.row[0], DS_INPUT, 0, 0, 8);
    check_place(&rows.row[1], DS_INPUT, 1, 8, 8);
    check_place(&rows.row[2], DS_OUTPUT, 0, 16, 8);
    check_place(&rows.row[3], DS_BUFFER, 0, 25, 4);
    CHECK_EQUAL(rows.shapes.count, 3);
    CHECK_EQUAL(rows.shapes.dim[2], 2);
    CHECK_EQUAL(rows.original_shapes.count, 2);
    CHECK(memcmp(file + rows.row[3].op_name_start, "conv", rows.row[3].op_name_length) == 0);
    ds_tensor_rows_free(&rows);
}

static void rows_have_statistics(void) {
    uint8_t file[FILE_BYTES];
    struct ds_tensor_rows rows;
    make_file(file);
    ds_tensor_rows_init(&rows, READINGS);

    CHECK_EQUAL(add_exactly(&rows, file, sizeof file), 1);

    const struct ds_summary *floats = &rows.row[0].summary, *naturals = &rows.row[1].summary;
    const struct ds_summary *integers = &rows.row[2].summary;
    CHECK(floats->max == 1 && floats->min == -2 && floats->mean == -0.5 && !floats->is_integer);
    CHECK(naturals->exact_max == UINT64_MAX && naturals->max == 0x1p64 && naturals->count == 1);
    CHECK(integers->exact_min == -4 && integers->min == -4 && integers->finite_max == 3);
    CHECK_EQUAL(integers->count, 2);
    CHECK_EQUAL(integers->negative, 1);
    CHECK_EQUAL(rows.row[2].size, 9);
    ds_tensor_rows_free(&rows);
}

/* Changes one byte of the message, and returns the result for the file. */
static int add_changed(struct ds_tensor_rows *rows, size_t place, uint8_t was, uint8_t value, size_t length) {
    uint8_t file[FILE_BYTES];
    make_file(file);
    CHECK_EQUAL(file[8 + place], was);
    file[8 + place] = value;
    return add_exactly(rows, file, length);
}

static void other_files_have_no_rows(void) {
    struct ds_tensor_rows rows;
    uint8_t file[FILE_BYTES + 1] = {0};
    make_file(file);
    ds_tensor_rows_init(&rows, READINGS);

    for (size_t length = 0; length < FILE_BYTES; length++)
        CHECK_EQUAL(add_exactly(&rows, file, length), 0);
    CHECK_EQUAL(add_exactly(&rows, file, sizeof file), 0); /* too long */
    CHECK_EQUAL(add_changed(&rows, INPUT_TYPE, FLOAT, 63, FILE_BYTES), 0);
    CHECK_EQUAL(add_changed(&rows, INPUT_TYPE, FLOAT, 64, FILE_BYTES), 0);
    CHECK_EQUAL(add_changed(&rows, INPUT_DIM, 1, 2, FILE_BYTES), 0); /* does not fit */

    CHECK_EQUAL(rows.count, 0);
    CHECK_EQUAL(rows.shapes.count, 0);
    CHECK_EQUAL(rows.original_shapes.count, 0);
    CHECK_EQUAL(rows.files, FILE_BYTES + 4);
    ds_tensor_rows_free(&rows);
}

static void a_tensor_without_address_has_no_bytes_in_a_shorter_file(void) {
    struct ds_tensor_rows rows;
    uint8_t file[FILE_BYTES];
    make_file(file);
    file[8 + INPUT_1_ADDRESS] = 0;
    ds_tensor_rows_init(&rows, READINGS);

    CHECK_EQUAL(add_exactly(&rows, file, FILE_BYTES), 1);
    uint8_t *behind = file + 8 + sizeof MESSAGE + 16;
    memmove(behind - 8, behind, sizeof DATA - 16);
    CHECK_EQUAL(add_exactly(&rows, file, FILE_BYTES - 8), 1);

    CHECK_EQUAL(rows.count, 8);
    CHECK(rows.row[1].stored && !rows.row[5].stored);
    CHECK_EQUAL(rows.row[5].file, 1);
    CHECK_EQUAL(rows.row[5].summary.count, 0);
    CHECK_EQUAL(rows.row[6].start, 8 + sizeof MESSAGE + 8);
    CHECK(rows.row[6].summary.exact_min == rows.row[2].summary.exact_min);
    ds_tensor_rows_free(&rows);
}

static void elements_of_two_components_count_twice(void) {
    struct ds_tensor_rows rows;
    uint8_t file[FILE_BYTES];
    make_file(file);
    file[8 + INPUT_TYPE] = COMPLEX64;
    file[8 + INPUT_DIM + 1] = 1;
    ds_tensor_rows_init(&rows, READINGS);

    CHECK_EQUAL(add_exactly(&rows, file, FILE_BYTES), 1);

    CHECK_EQUAL(rows.row[0].summary.count, 2);
    CHECK_EQUAL(rows.row[0].taken, 8);
    ds_tensor_rows_free(&rows);
}

static void a_file_without_shapes_has_rows(void) {
    /* A version and an input: data_type and size. */
    static const uint8_t file[] = {11,  0,   0,   0,    0, 0,    0, 0,    0x0a, 3,
                                   '2', '.', '0', 0x22, 4, 0x08, 0, 0x28, 1,    7};
    struct ds_tensor_rows rows;
    ds_tensor_rows_init(&rows, READINGS);

    CHECK_EQUAL(add_exactly(&rows, file, sizeof file), 1);

    CHECK_EQUAL(rows.count, 1);
    CHECK_EQUAL(rows.row[0].dims, 0);
    CHECK_EQUAL(rows.row[0].summary.exact_max, 7);
    ds_tensor_rows_free(&rows);
}

static size_t count_exactly(const uint8_t *bytes, size_t length) {
    uint8_t *exact = malloc(length ? length : 1);
    CHECK(exact);
    memcpy(exact, bytes, length);
    size_t count = ds_count_tensors(exact, length);
    free(exact);
    return count;
}

static void the_tensors_of_a_whole_file_are_counted(void) {
    uint8_t file[FILE_BYTES];
    make_file(file);

    CHECK_EQUAL(count_exactly(file, FILE_BYTES), 4);
    for (size_t length = 0; length < FILE_BYTES; length++)
        CHECK_EQUAL(count_exactly(file, length), 0);
}

static void damage_is_refused_or_stays_inside_the_file(void) {
    struct ds_tensor_rows rows;
    unsigned measured = 0;
    ds_tensor_rows_init(&rows, READINGS);
    for (unsigned i = 0; i < MUTATIONS; i++) {
        uint8_t file[FILE_BYTES];
        make_file(file);
        for (uint32_t changes = 1 + next_random(3); changes > 0; changes--)
            file[next_random(8 + sizeof MESSAGE)] = (uint8_t)next_random(256);
        size_t before = rows.count;
        int result = add_exactly(&rows, file, FILE_BYTES);
        CHECK_EQUAL(result == 1, rows.count > before);
        CHECK(count_exactly(file, FILE_BYTES) <= FILE_BYTES);
        measured += result == 1;
        for (size_t row = before; row < rows.count; row++)
            CHECK(rows.row[row].start <= FILE_BYTES &&
                  rows.row[row].taken <= FILE_BYTES - rows.row[row].start);
        if (rows.count > 1000) {
            ds_tensor_rows_free(&rows);
            ds_tensor_rows_init(&rows, READINGS);
        }
    }
    CHECK(measured > MUTATIONS / 100);
    ds_tensor_rows_free(&rows);
}

int main(void) {
    rows_are_in_the_order_of_the_bytes();
    rows_have_statistics();
    other_files_have_no_rows();
    a_tensor_without_address_has_no_bytes_in_a_shorter_file();
    elements_of_two_components_count_twice();
    a_file_without_shapes_has_rows();
    the_tensors_of_a_whole_file_are_counted();
    damage_is_refused_or_stays_inside_the_file();
    return 0;
}
