/* A hostile producer writes random and well-aimed bytes all over the ring: first in turn with
 * the reader, then as another process while the reader reads. The reader stays inside its
 * copies, never loops, and takes only valid records. The sanitizers watch. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/dumpstream/native/ring_layout.h"
#include "check.h"
#include "dumpstream/reader.h"

#define RING_BYTES DS_RING_MIN_BYTES
#define ROUNDS 12u
#define TURNS 500u
#define ATTACK_NS 30000000u
/* After this many looks without a result, the attacker pushes to another place. */
#define PATIENCE 32u

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t draw_number(void) {
    static const uint64_t telling[] = {
        0,          1,         15,         16,          17,       48,        RING_BYTES,    UINT32_MAX,
        UINT64_MAX, INT64_MAX, RING_BYTES, DS_NAME_MAX, 1u << 31, INT64_MIN, DS_RECORD_PAD, UINT64_MAX - 15};
    uint64_t kind = draw() % 4;
    if (kind == 0)
        return draw();
    if (kind == 1)
        return draw() % (2 * RING_BYTES);
    return telling[draw() % (sizeof telling / sizeof *telling)];
}

static void wake_no_reader(struct ds_ring *ring) {
    (void)ring;
}

static void push_sound(struct ds_ring *ring, struct ds_lane *lane) {
    static const uint8_t data[2000];
    struct ds_message message = {.name = "fuzz",
                                 .name_length = 4,
                                 .data = data,
                                 .data_length = lane == &ring->data ? (uint32_t)(draw() % sizeof data) : 0,
                                 .sequence = draw_number(),
                                 .offset = -1};
    ds_ring_push(ring, lane, &message);
}

/* Damages one of the records that the reader will read next, including its stamp. */
static void forge_record(struct ds_ring *ring, struct ds_lane *lane) {
    uint64_t tail = atomic_load(&lane->positions->tail);
    uint64_t position = (tail / DS_RECORD_ALIGN + draw() % 64) * DS_RECORD_ALIGN;
    if (lane->size - position % lane->size < sizeof(struct ds_record))
        return;
    struct ds_record *record = ds_record_at(lane, position);
    record->length = (uint32_t)draw_number();
    record->flags = draw() % 2 ? 0 : (uint32_t)draw_number();
    record->name_length = draw() % 2 ? 4 : (uint32_t)draw_number();
    record->data_length = (uint32_t)draw_number();
    record->offset = (int64_t)draw_number();
    record->sequence = draw_number();
    record->flag = (int32_t)draw_number();
    atomic_store(&record->stamp, ds_stamp(ring->nonce, position));
}

static void do_harm(struct ds_ring *ring) {
    uint8_t *base = (uint8_t *)ring->control;
    struct ds_lane *lane = draw() % 4 ? &ring->data : &ring->notes;
    switch (draw() % 32) {
    case 0: /* the control page: intact pushes also read it, so keep it aligned */
        *(uint64_t *)(void *)(base + draw() % (DS_CONTROL_BYTES / 8) * 8) = draw_number();
        break;
    case 1:
        atomic_store(&lane->positions->head, atomic_load(&lane->positions->tail) + draw_number() / 16 * 16);
        break;
    case 2:
        *(uint64_t *)(void *)(lane->base + draw() % (lane->size / 8) * 8) = draw_number();
        break;
    case 3:
        forge_record(ring, lane);
        break;
    default:
        push_sound(ring, lane);
    }
}

static void check_copy(const struct ds_records *records) {
    struct ds_message view;
    uint64_t position = records->start;
    while (ds_records_next(records, &position, &view) == 1) {
        const uint8_t *end = records->copy + (records->end - records->start);
        const uint8_t *data = view.data;
        CHECK((const uint8_t *)view.name >= records->copy && data + view.data_length <= end);
        CHECK(view.name_length > 0 && view.name_length <= DS_NAME_MAX);
        CHECK(view.offset >= -1);
        /* Touch every byte, so that the sanitizer sees a wrong address. */
        uint32_t sum = 0;
        for (uint32_t i = 0; i < view.data_length; i++)
            sum += data[i];
        for (uint32_t i = 0; i < view.name_length; i++)
            sum += (uint8_t)view.name[i];
        CHECK(sum < UINT32_MAX);
    }
}

/* Looks at the ring once. Returns 1 if it found anything, 0, or -EBADMSG. */
static int look(struct ds_reader *reader) {
    struct ds_batch batch;
    struct ds_counters counters;
    int result = ds_reader_take(reader, 1 + draw() % 100, 1 + draw() % RING_BYTES, &batch);
    CHECK(result == 0 || result == -EBADMSG);
    CHECK(batch.size <= 2 * RING_BYTES);
    check_copy(&batch.losses);
    check_copy(&batch.chunks);
    if (result == 0 && batch.size)
        ds_ring_free(&reader->ring, &reader->ring.data, batch.chunks.end);
    if (result == 0 && (batch.size || batch.losses.end > batch.losses.start))
        result = 1;
    ds_batch_free(&batch);
    ds_ring_arm(&reader->ring, draw_number());
    ds_ring_disarm(&reader->ring);
    ds_reader_count(reader, &counters);
    CHECK(counters.fill <= RING_BYTES);
    return result;
}

/* Repairs the positions. A collector would give up; the test goes on. */
static void make_up(struct ds_reader *reader, struct ds_ring *repair) {
    reader->ring.data.read += RING_BYTES;
    reader->ring.notes.read += DS_NOTE_LANE_BYTES;
    atomic_store(&repair->control->data.tail, reader->ring.data.read);
    atomic_store(&repair->control->data.head, reader->ring.data.read);
    reader->ring.data.freed = reader->ring.data.read;
    reader->ring.notes.freed = reader->ring.notes.read;
    atomic_store(&repair->control->notes.tail, reader->ring.notes.read);
    atomic_store(&repair->control->notes.head, reader->ring.notes.read);
}

/* Continues to read, whatever it finds. */
static void read_on(struct ds_reader *reader, struct ds_ring *repair, unsigned *idle) {
    int found = look(reader);
    *idle = found == 0 ? *idle + 1 : 0;
    if (found < 0 || *idle == PATIENCE)
        make_up(reader, repair);
}

static void take_turns(struct ds_reader *reader, struct ds_ring *attacked) {
    unsigned idle = 0;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (uint64_t blows = draw() % 16; blows > 0; blows--)
            do_harm(attacked);
        read_on(reader, attacked, &idle);
    }
}

static void read_under_attack(struct ds_reader *reader, struct ds_ring *attacked) {
    unsigned idle = 0;
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    while (child == 0)
        do_harm(attacked);
    for (uint64_t end = ds_clock_ns() + ATTACK_NS; ds_clock_ns() < end;)
        read_on(reader, attacked, &idle);
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static uint64_t round_of(const char *path) {
    struct ds_reader reader;
    struct ds_ring ring;
    CHECK_EQUAL(ds_reader_create(&reader, RING_BYTES, path), 0);
    CHECK_EQUAL(ds_ring_map(&ring, reader.ring.memory_fd, RING_BYTES), 0);
    CHECK_EQUAL(madvise(ring.control, ring.mapped, MADV_DOFORK), 0);
    ring.wake = wake_no_reader;

    take_turns(&reader, &ring);
    read_under_attack(&reader, &ring);
    ds_reader_end(&reader);
    /* Reading what a dead producer left must end by itself. */
    while (look(&reader) == 1)
        continue;

    uint64_t taken = reader.finished;
    ds_ring_destroy(&ring);
    ds_ring_destroy(&reader.ring);
    return taken;
}

int main(void) {
    char path[] = "/tmp/dumpstream-fuzz-XXXXXX";
    uint64_t taken = 0;
    CHECK_EQUAL(close(mkstemp(path)), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        draw();
        unlink(path);
        taken += round_of(round % 4 == 3 ? path : NULL);
    }
    unlink(path);
    CHECK(taken > 100 * ROUNDS); /* otherwise nothing got past the checks */
    return 0;
}
