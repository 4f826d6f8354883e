/* Pairs of whole files, with untrusted bytes. Each file lies in memory of exactly its length, so that the
 * address sanitizer sees a read past its end. */
#include "dumpstream/file_pairs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "dumpstream/listing.h"
#include "random.h"

#define MUTATIONS 100000u

enum { FLOAT = 1, INT32 = 7 };

static struct ds_pair_type types[DS_DATA_TYPES];

static void fill_types(void) {
    types[FLOAT] = (struct ds_pair_type){true, 1, {.kind = DS_F4, .digits = 23, .exponent = -126}};
    types[INT32] = (struct ds_pair_type){true, 1, {.kind = DS_I4, .is_integer = true}};
}

/* As in CANN, the output comes before the input in the message, and after it in the file. */
static const uint8_t MESSAGE[] = {
    0x0a, 3,  '2',  '.', '0',    /* version */
    0x1a, 13,                    /* output, of which: */
    0x08, 7,  0x10, 2,           /*   data_type, format */
    0x1a, 3,  0x0a, 1,   2,      /*   shape */
    0x30, 9,  0x48, 5,           /*   size, one byte more than needed, and address */
    0x22, 14,                    /* input, of which: */
    0x08, 1,  0x10, 2,           /*   data_type, format */
    0x1a, 4,  0x0a, 2,   1,   2, /*   shape */
    0x28, 8,  0x40, 6,           /*   size, address */
};
static const uint8_t DATA[] = {
    0, 0, 0x80, 0x3f, 0,   0,   0,   0xc0,     /* input 0: 1 and -2 */
    3, 0, 0,    0,    252, 255, 255, 255,  99, /* output 0: 3, -4 and padding */
};
enum { OUTPUT_TYPE = 8, OUTPUT_ADDRESS = 19, INPUT_FORMAT = 25, INPUT_DIM = 30 };

#define FILE_BYTES (8 + sizeof MESSAGE + sizeof DATA)

static void make_file(uint8_t file[FILE_BYTES]) {
    memset(file, 0, 8);
    file[0] = sizeof MESSAGE;
    memcpy(file + 8, MESSAGE, sizeof MESSAGE);
    memcpy(file + 8 + sizeof MESSAGE, DATA, sizeof DATA);
}

static uint8_t *exact_copy(const uint8_t *bytes, size_t length) {
    uint8_t *exact = malloc(length ? length : 1);
    CHECK(exact);
    memcpy(exact, bytes, length);
    return exact;
}

static int add_exactly(struct ds_file_pairs *pairs, const uint8_t *mine, size_t mine_length,
                       const uint8_t *golden, size_t golden_length) {
    uint8_t *ours = exact_copy(mine, mine_length), *theirs = exact_copy(golden, golden_length);
    int result = ds_file_pairs_add(pairs, ours, mine_length, theirs, golden_length);
    free(ours);
    free(theirs);
    return result;
}

static void test_pairs_have_rows_in_the_order_of_bytes(void) {
    struct ds_file_pairs pairs;
    uint8_t mine[FILE_BYTES], golden[FILE_BYTES];
    make_file(mine);
    make_file(golden);
    golden[8 + sizeof MESSAGE + 8] = 5;
    ds_file_pairs_init(&pairs, types);
    CHECK(add_exactly(&pairs, mine, FILE_BYTES, golden, FILE_BYTES) == 1);
    CHECK(pairs.count == 2 && pairs.pairs == 1);
    CHECK(pairs.row[0].io == DS_INPUT && pairs.row[0].dims == 2 && pairs.row[0].address[1] == 6);
    CHECK(pairs.row[0].summary.count == 2 && pairs.row[0].summary.bit_equal == 2);
    CHECK(pairs.row[1].io == DS_OUTPUT && pairs.row[1].data_type[0] == INT32 && pairs.row[1].size[0] == 9);
    CHECK(pairs.row[1].summary.bit_equal == 1 && pairs.row[1].summary.exact_max == 2);
    CHECK(pairs.shapes.count == 3 && pairs.shapes.dim[2] == 2);
    ds_file_pairs_free(&pairs);
}

static void test_other_pairs_have_no_row(void) {
    static const struct {
        size_t place;
        uint8_t value;
    } changes[] = {{8 + OUTPUT_TYPE, 3}, {8 + OUTPUT_ADDRESS, 0}, {8 + INPUT_FORMAT, 1}, {8 + INPUT_DIM, 2}};
    struct ds_file_pairs pairs;
    uint8_t mine[FILE_BYTES], golden[FILE_BYTES];
    make_file(mine);
    ds_file_pairs_init(&pairs, types);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        make_file(golden);
        golden[changes[i].place] = changes[i].value;
        CHECK(add_exactly(&pairs, mine, FILE_BYTES, golden, FILE_BYTES) == 0);
        CHECK(add_exactly(&pairs, golden, FILE_BYTES, mine, FILE_BYTES) == 0);
    }
    CHECK(add_exactly(&pairs, mine, FILE_BYTES, mine, FILE_BYTES - 1) == 0);
    CHECK(add_exactly(&pairs, mine, FILE_BYTES, mine, 0) == 0);
    CHECK(pairs.count == 0 && pairs.shapes.count == 0 && pairs.pairs == 10);
    ds_file_pairs_free(&pairs);
}

static void test_damaged_pairs_are_harmless(void) {
    struct ds_file_pairs pairs;
    uint8_t files[2][FILE_BYTES];
    ds_file_pairs_init(&pairs, types);
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        make_file(files[0]);
        make_file(files[1]);
        for (uint32_t changes = next_random(4); changes > 0; changes--)
            files[next_random(2)][next_random(FILE_BYTES)] = (uint8_t)next_random(256);
        size_t length = next_random(8) ? FILE_BYTES : next_random(FILE_BYTES);
        int result = add_exactly(&pairs, files[0], length, files[1], FILE_BYTES);
        CHECK(result == 0 || result == 1);
        pairs.count = pairs.shapes.count = pairs.original_shapes.count = 0;
    }
    ds_file_pairs_free(&pairs);
}

static bool read_name(const char *name, struct ds_operator_name *found) {
    size_t length = strlen(name);
    char *exact = (char *)exact_copy((const uint8_t *)name, length);
    bool read = ds_operator_name_read(exact, length, (struct ds_journal_key){0}, found);
    free(exact);
    return read;
}

static void test_names_are_read_or_take_a_closer_look(void) {
    static const char *const others[] = {
        "",
        ".",
        "....",
        "Add.add.1.2",
        "Add.add.1.2.3.4",
        "Add.12.1.2.3",
        "Add.add.x.2.3",
        "Add.add.1.2.",
        "Add.a b.1.2.3",
        "Add.add.1.2.99999999999999999999",
        "Add_9999999999999999999_L0.add.1.2.3",
    };
    struct ds_operator_name first, second;
    CHECK(read_name("Add.add.4.5.6", &first) && first.task == 4 && first.time == 6 && first.sequence == -1);
    CHECK(read_name("Add_12_L0.add.4.5.6", &first) && first.sequence == 12);
    CHECK(read_name("Add_7_L0.add.1.2.3", &second) && second.sequence == 7);
    CHECK(first.operator_hash == second.operator_hash);
    CHECK(read_name("Add_7_L2.add.1.2.3", &second) && first.operator_hash != second.operator_hash);
    CHECK(read_name("_7_L2.add.1.2.3", &second) && second.sequence == -1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!read_name(others[i], &first));
}

static void make_entry(const char *directory, const char *name, bool folder) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (folder) {
        CHECK(mkdir(path, 0700) == 0);
    } else {
        FILE *file = fopen(path, "w");
        CHECK(file && fclose(file) == 0);
    }
}

static void test_directories_are_listed_in_order(void) {
    char directory[] = "/tmp/listing-XXXXXX", command[64];
    struct ds_listing listing;
    struct ds_journal_key key = {1, 2};
    CHECK(mkdtemp(directory));
    make_entry(directory, "Mul.b.1.2.3", false);
    make_entry(directory, "Add.a.4.5.6", false);
    make_entry(directory, ".hidden", false);
    make_entry(directory, "folder", true);
    CHECK(ds_listing_read(&listing, directory, key) == 0);
    CHECK(listing.files == 2 && strcmp(listing.file[0], "Add.a.4.5.6") == 0 && listing.said[0].task == 4);
    CHECK(listing.folders == 1 && strcmp(listing.folder[0], "folder") == 0);
    ds_listing_free(&listing);
    make_entry(directory, "notes.txt", false);
    CHECK(ds_listing_read(&listing, directory, key) == 0 && listing.files == 3 && !listing.said);
    ds_listing_free(&listing);
    snprintf(command, sizeof command, "rm -r %s", directory);
    CHECK(system(command) == 0);
    CHECK(ds_listing_read(&listing, directory, key) == -ENOENT);
    ds_listing_free(&listing);
}

int main(void) {
    fill_types();
    test_directories_are_listed_in_order();
    test_pairs_have_rows_in_the_order_of_bytes();
    test_other_pairs_have_no_row();
    test_damaged_pairs_are_harmless();
    test_names_are_read_or_take_a_closer_look();
    return 0;
}
