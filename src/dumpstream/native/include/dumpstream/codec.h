/* The codec of stored files: the bytes of a dump file to blocks, and back. docs/format.md
 * specifies the blocks.
 *
 * An encoder is told where the tensors are, and what their elements are. That is only a
 * hint: whatever it says, the bytes come back as they were. A decoder takes untrusted bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the elements of a tensor are encoded. The numbers are those in a block. */
enum ds_element {
    DS_BYTES,
    DS_HALF,
    DS_BFLOAT,
    DS_SINGLE,
    DS_DOUBLE,
    DS_INTEGER_2,
    DS_INTEGER_4,
    DS_INTEGER_8,
    DS_ELEMENTS
};

/* Bytes of a file with the same elements, from the end of the run before. */
struct ds_run {
    uint64_t end;
    uint32_t element; /* enum ds_element */
    uint32_t unused;
};

/* Writes the runs of the file whose header is at `bytes` to `runs`, and returns how many there
 * are. If that is more than `most`, it has not written them all. 0: there is no whole header. */
size_t ds_layout_read(const uint8_t *bytes, size_t length, struct ds_run *runs, size_t most);

enum ds_effort {
    DS_FAST,  /* packs exponents, unless byte planes would save much more, */
    DS_AUTO,  /* or clearly more */
    DS_SMALL, /* byte planes */
    DS_KEEP,  /* compresses nothing */
};

struct ds_encoder;

/* Returns NULL if there is no memory. `level` is that of libzstd for what are not floats. */
struct ds_encoder *ds_encoder_new(enum ds_effort effort, int level);
void ds_encoder_free(struct ds_encoder *encoder);

/* Returns the room that ds_encode needs for so many bytes, more than they become. */
size_t ds_encoded_bound(size_t length);

/* Encodes the bytes at `position` of a file with these runs, and returns how many bytes it has
 * written to `out`, which has room for ds_encoded_bound. No bytes become one block. */
size_t ds_encode(struct ds_encoder *encoder, const uint8_t *bytes, size_t length, uint64_t position,
                 const struct ds_run *runs, size_t count, uint8_t *out);

/* No block has more original bytes. */
#define DS_BLOCK_MOST (1u << 20)
#define DS_BLOCK_HEADER 20u
/* The most that so many bytes become: they have a header for each 128 KiB that is begun, and so have room for
 * two for each block of elements that do not become fewer. */
#define DS_ENCODED_MOST(length) ((length) + ((length) / (128u << 10) + 1) * DS_BLOCK_HEADER)
/* The longest payload for so many. An encoder makes none that is longer than the original bytes; planes
 * and a bitmap that are not compressed may be. */
#define DS_PAYLOAD_MOST(raw) ((raw) + (raw) / 8 + 64)

struct ds_decoder;

/* Returns NULL if there is no memory. */
struct ds_decoder *ds_decoder_new(void);
void ds_decoder_free(struct ds_decoder *decoder);

struct ds_decoded {
    size_t taken;      /* bytes of `bytes`, always whole blocks */
    size_t made;       /* bytes in `out` */
    size_t need;       /* with fewer bytes, the next block is not whole; 0 if it does not fit in `out` */
    const char *fault; /* what is wrong with the next block, or NULL */
};

/* Decodes blocks while they are whole and their bytes fit in `out`. A block that does not match
 * its checksum is a fault. */
struct ds_decoded ds_decode(struct ds_decoder *decoder, const uint8_t *bytes, size_t length, uint8_t *out,
                            size_t room);

/* The checksum of a block: CRC-32 as in zlib. */
uint32_t ds_crc32(const uint8_t *bytes, size_t length);

/* Chooses the kernels by name, or the fastest ("auto"), for the whole process. Returns the name
 * of those in use, or NULL if this machine does not have them. */
const char *ds_codec_use(const char *name);

/* Whether libzstd was found. Without it an encoder leaves raw what it would compress with it,
 * and a decoder refuses blocks that need it. */
bool ds_zstd_found(void);
/* For tests: behaves as if it was not found, or was. Only for encoders and decoders made later. */
void ds_zstd_hide(bool hidden);
