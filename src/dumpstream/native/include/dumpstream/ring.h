/* The ring: several producers, one reader, one block of memory that another
 * process may map.
 *
 *   +---------+----------------------+-------------------------------------+
 *   | control |      note lane       |              data lane              |
 *   +---------+----------------------+-------------------------------------+
 *
 * A lane is a circular run of records. Positions have 64 bits, count the bytes
 * since the lane was made and only grow. The record at position p starts at
 * byte p mod size of its lane, aligned to 16. Each record begins with a stamp
 * that depends on its position and on a secret of the ring. A reader therefore
 * never takes bytes of an earlier lap for a record, and nothing is cleared.
 *
 *   CLAIMED  -> PUBLISHED -> LEASED -> free again
 *   producer    either       reader
 *
 * A producer claims space by moving `head` (never more than one lap beyond
 * `tail`), writes the record, and publishes it by storing the stamp. The
 * reader takes records in order of position while stamps match, and frees
 * them by moving `tail`. It keeps its own copy of every number it steers by;
 * what it finds in a record is copied once and checked before use.
 *
 * The data lane carries chunks. However small a chunk is, its record has at least
 * `least` bytes: storing a file takes its reader time, and a ring must not hold more
 * files than can be stored in seconds. The note lane is small and carries the names
 * of losses, because losses happen when the data lane is full. Part of it is
 * reserved for abandon notes. Such a note ends a chunk that was cut off between
 * its records: without it, the next file of that name would continue the chunk.
 *
 * Between chunks there may be marks: what comes behind one belongs to its step.
 *
 * Functions return 0 or a negative errno unless they say otherwise. None of
 * them calls into Python. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DS_RING_MIN_BYTES (64u << 10)
#define DS_RECORD_ALIGN 16u
#define DS_NAME_MAX 4095u
/* The most abandon notes that may be reserved or unread. A chunk that is cut off
 * leaves a record of about an eighth of the data lane between its note and the
 * note before, so one producer never needs more. */
#define DS_ABANDON_MAX 10u

/* Why bytes were not delivered. Losses are counted by cause; python/module.c has the names. */
enum ds_cause {
    DS_CAUSE_NULL_CHUNK, /* the runtime passed no chunk */
    DS_CAUSE_BAD_LENGTH, /* `len` does not cover what bufLen promises */
    DS_CAUSE_BAD_NAME,   /* empty, contains a NUL, or does not end within 4096 bytes */
    DS_CAUSE_BAD_OFFSET, /* below -1 */
    DS_CAUSE_TOO_LARGE,  /* would end beyond max_file_bytes */
    DS_CAUSE_FULL,       /* the ring was full and the policy is to drop */
    DS_CAUSE_TIMEOUT,    /* the ring was full for longer than the time limit */
    DS_CAUSE_AFTER_LOSS, /* the rest of a file that had lost a chunk */
    DS_CAUSE_DISCARDED,  /* the capture had ended, the dump had not */
    DS_CAUSE_UNFINISHED, /* the producer died while it wrote the chunk */
    DS_CAUSE_COUNT
};

enum ds_record_flags {
    DS_RECORD_PAD = 1u << 0,     /* fills the end of a lap and carries nothing */
    DS_RECORD_LAST = 1u << 1,    /* the file's last chunk */
    DS_RECORD_MORE = 1u << 2,    /* data: further records of this callback follow */
    DS_RECORD_ABANDON = 1u << 3, /* note: the chunk was cut off after a record with MORE */
    DS_RECORD_MARK = 1u << 4,    /* data: the program has begun a step; it is alone, see ds_message */
};

/* The largest step that a program can mark. */
#define DS_STEP_MAX INT64_C(999999999999999999)
/* The step of chunks before the first mark. */
#define DS_NO_STEP INT64_C(-1)

/* The head of a record as it lies in the ring; name and data follow, the data
 * aligned to DS_RECORD_ALIGN. A PAD has only the first 16 bytes. */
struct ds_record {
    _Atomic uint64_t stamp;
    uint32_t length; /* of the whole record */
    uint32_t flags;
    uint64_t sequence;
    int64_t offset;
    uint32_t name_length;
    uint32_t data_length;
    int32_t flag;
    uint32_t reserved;
};
_Static_assert(sizeof(struct ds_record) == 48, "record head");

struct ds_lane_positions {
    _Alignas(64) _Atomic uint64_t head; /* producers claim here */
    _Alignas(64) _Atomic uint64_t tail; /* the reader has freed everything before */
};

struct ds_control {
    uint64_t magic;
    uint64_t version;
    uint64_t data_size;
    uint64_t note_size;
    uint64_t nonce;
    struct ds_lane_positions data;
    struct ds_lane_positions notes;
    _Alignas(64) _Atomic uint64_t wake_at; /* a record that ends here or later wakes the reader */
    _Alignas(64) _Atomic uint32_t waiters; /* producers that wait for space */
    _Atomic uint32_t freed;                /* futex: changes when space is freed or the state changes */
    _Atomic uint32_t state;                /* enum ds_state */
    _Atomic uint32_t abandons;             /* abandon notes that are reserved or unread */
    _Alignas(64) _Atomic uint64_t callbacks;
    _Atomic uint64_t wakeups;
    _Atomic uint64_t lost_chunks[DS_CAUSE_COUNT];
    _Atomic uint64_t lost_bytes[DS_CAUSE_COUNT];
    _Atomic uint64_t unnamed_chunks; /* losses of which the reader does not know the name */
};

enum ds_state { DS_STATE_OPEN, DS_STATE_DISCARD, DS_STATE_CLOSED };

/* One process's hold on one lane. */
struct ds_lane {
    struct ds_lane_positions *positions;
    uint8_t *base;  /* NULL: not mapped */
    uint64_t start; /* in the ring's memory or file */
    uint64_t size;
    uint64_t kept;  /* bytes that only abandon notes may take */
    uint32_t least; /* no record but a pad is shorter */
    uint64_t read;  /* the reader's own position */
    uint64_t freed; /* the tail as the reader left it */
    uint64_t end;   /* where the claims of a dead producer end */
};

struct ds_ring {
    struct ds_control *control;
    struct ds_lane data;
    struct ds_lane notes;
    uint64_t nonce;
    uint32_t max_record; /* an eighth of the data lane */
    size_t mapped;
    _Atomic uint64_t touched; /* so much of the data lane is in the page tables of this process */
    int memory_fd;            /* -1: mapped from a descriptor that the caller owns */
    int event_fd;             /* -1: `wake` does not need one */
    /* A producer calls it when the reader has asked to be woken. */
    void (*wake)(struct ds_ring *ring);
    /* A producer that waits for space calls it. False: the reader is gone. NULL:
     * the reader is in this process. */
    bool (*reader_alive)(struct ds_ring *ring);
};

/* What a producer passes to the ring, and what the reader finds there: checked, with numbers
 * that are copies, and with a name and data that lie in the ring or in a copy of it. A mark
 * has neither: its offset is the step, and its sequence counts the marks of the producer. */
struct ds_message {
    const char *name;
    const void *data;
    uint64_t sequence;
    int64_t offset;
    uint32_t name_length;
    uint32_t data_length;
    uint32_t flags;
    int32_t flag;
};

/* Makes a ring with a data lane of `data_size` bytes, rounded up to a page. Without
 * a path it lies in memory that is touched in advance; with one it lies in a new
 * file of that name, with blocks that are allocated but not touched. */
int ds_ring_create(struct ds_ring *ring, uint64_t data_size, const char *path);

/* Maps, for producers, the ring in `fd` that another process made and reads. The
 * caller keeps the descriptor and may close it. -EBADMSG: it does not hold a ring
 * with such a data lane, or its maker could still shrink the memory. Of memory, only
 * what the first lap reaches is entered in the page tables of this process. */
int ds_ring_map(struct ds_ring *ring, int fd, uint64_t data_size);

/* Enters all of the data lane in the page tables, before anything is pushed. */
void ds_ring_touch(struct ds_ring *ring);

/* Lets producers wake the reader by `event_fd`, an eventfd that the ring closes in the end. */
void ds_ring_wake_by(struct ds_ring *ring, int event_fd);

/* Unmaps and closes. No thread may be inside the ring. */
void ds_ring_destroy(struct ds_ring *ring);

/* Copies one record into a lane. -EAGAIN: there is no space now. Wakes the
 * reader if it sleeps and this record reaches what it waits for. */
int ds_ring_push(struct ds_ring *ring, struct ds_lane *lane, const struct ds_message *message);

/* Reserves an abandon note: a push onto the note lane with that flag will find
 * space. False: DS_ABANDON_MAX notes are reserved or unread. */
bool ds_ring_reserve_abandon(struct ds_ring *ring);

/* Returns a reservation. The producer calls it if it did not need the note, the
 * reader after it has freed the note. */
void ds_ring_return_abandon(struct ds_ring *ring);

/* Pushes onto the data lane and waits for space until `deadline_ns` on the
 * monotonic clock. -ETIMEDOUT: there was still no space; -EPIPE: the ring is not
 * open, or its reader is gone. */
int ds_ring_push_wait(struct ds_ring *ring, const struct ds_message *message, uint64_t deadline_ns);

/* Ends all waiting and makes every later push_wait return -EPIPE. */
void ds_ring_set_state(struct ds_ring *ring, enum ds_state state);

/* Reads the record at `*position` and moves `*position` past it. Returns 1, 0 if
 * nothing is published there, or -EBADMSG if the record is damaged. Without name and
 * data if the lane is not mapped. */
int ds_ring_peek(const struct ds_ring *ring, const struct ds_lane *lane, uint64_t *position,
                 struct ds_message *message);

/* Frees everything before `position`. */
void ds_ring_free(struct ds_ring *ring, struct ds_lane *lane, uint64_t position);

/* Asks to be woken when a record ends `distance` bytes after what has been read;
 * 0 stands for the very next record. If a record is there already, returns true
 * and does not arm. */
bool ds_ring_arm(struct ds_ring *ring, uint64_t distance);
void ds_ring_disarm(struct ds_ring *ring);

struct ds_counters {
    uint64_t fill; /* bytes of the data lane that are not free */
    uint64_t callbacks;
    uint64_t wakeups;
    uint64_t unnamed; /* losses without a known name */
    uint64_t lost_chunks[DS_CAUSE_COUNT];
    uint64_t lost_bytes[DS_CAUSE_COUNT];
};
void ds_ring_count(const struct ds_ring *ring, struct ds_counters *counters);

uint64_t ds_clock_ns(void);
