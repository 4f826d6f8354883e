#include "session.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dump.h"
#include "dumpstream/agent.h"
#include "report.h"

#define SOCKET_VARIABLE "DUMPSTREAM_SOCKET"
#define DETACH_LIMIT_NS 10000000000u
#define LOCK_PAUSE_NS 1000000
#define QUIET_NS 50000000
#define QUIET_LIMIT_NS 10000000000u

static struct {
    bool joined;
    bool started;  /* the dump, by us: ours to stop */
    bool stuck;    /* a callback never left: the ring stays mapped, and the only one */
    pid_t refused; /* the process that was told that it is not captured */
    const void *library;
    struct connection connection;
    struct ds_ring ring;
    struct ds_policy policy;
} session = {.connection = {.fd = -1}};

static _Atomic(acldumpCallback) shared;

/* The lock holds the number of its process: a child forked while it was held
 * finds its parent's number, and takes it. Never held by the callback. */
static _Atomic pid_t holder;
static _Thread_local bool working;

bool session_is_working(void) {
    return working;
}

static int lock(void) {
    int saved = errno;
    pid_t self = getpid();
    for (;;) {
        pid_t seen = atomic_load(&holder);
        if (seen != self && atomic_compare_exchange_strong(&holder, &seen, self))
            break;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    working = true;
    return saved;
}

static void unlock(int saved) {
    dlerror(); /* the program must not find what our searches did not */
    working = false;
    atomic_store(&holder, 0);
    errno = saved;
}

/* The callback */

static int32_t on_chunk(const acldumpChunk *chunk, int32_t len) {
    int saved = errno;
    int32_t result = ds_on_chunk(chunk, len);
    errno = saved;
    acldumpCallback other = atomic_load_explicit(&shared, memory_order_acquire);
    return other ? other(chunk, len) : result;
}

static void wake(struct ds_ring *ring) {
    (void)ring;
    connection_wake(&session.connection);
}

static bool watch(struct ds_ring *ring) {
    (void)ring;
    return !connection_is_gone(&session.connection);
}

acldumpCallback session_share(acldumpCallback callback) {
    acldumpCallback none = NULL;
    /* As the runtime does: the first one stays. */
    atomic_compare_exchange_strong(&shared, &none, callback);
    return on_chunk;
}

bool session_unshare(void) {
    int saved = lock();
    bool joined = session.joined && !ds_forked();
    atomic_store(&shared, NULL);
    unlock(saved);
    return !joined;
}

/* Joining and leaving */

/* Notes the files that were still refused: nobody else knows their names. */
static void note_refused(void) {
    struct ds_ring *ring = &session.ring;
    for (uint32_t i = 0; i < DS_REFUSED_MAX; i++) {
        struct ds_message note = {.flags = DS_RECORD_LAST, .flag = DS_CAUSE_AFTER_LOSS};
        uint64_t bytes;
        if (!ds_refused_file(i, &note.name, &note.name_length, &bytes))
            continue;
        note.sequence = atomic_load(&ring->data.positions->head);
        note.offset = (int64_t)bytes;
        if (ds_ring_push(ring, &ring->notes, &note) != 0)
            atomic_fetch_add(&ring->control->unnamed_chunks, 1);
    }
}

static void leave(void) {
    session.joined = false;
    session.stuck = ds_detach(&session.ring, DETACH_LIMIT_NS) != 0;
    if (!session.stuck)
        note_refused();
    report_bye(&session.ring);
    if (session.stuck)
        return; /* the call inside may still want to wake the collector */
    connection_close(&session.connection);
    ds_ring_destroy(&session.ring);
}

/* A child starts afresh: the ring is not mapped in it, and the socket is its
 * parent's. */
static void forget_parent(void) {
    if (!ds_forked())
        return;
    connection_close(&session.connection);
    session.joined = session.started = session.stuck = false;
}

/* The collector takes a socket that is open for a process that is there: a child
 * must not hold that of a parent which ends, or becomes another program. */
static void close_inherited(void) {
    connection_close(&session.connection);
}

static int attach(struct offer *offer) {
    static bool prepared;
    if (!prepared)
        prepared = pthread_atfork(NULL, NULL, close_inherited) == 0;
    int error = ds_ring_map(&session.ring, offer->ring_fd, offer->size);
    close(offer->ring_fd);
    if (error)
        return error;
    session.ring.wake = wake;
    session.ring.watch = watch;
    session.policy = offer->policy;
    error = ds_attach(&session.ring, &session.policy);
    if (error)
        ds_ring_destroy(&session.ring);
    return error;
}

static int join(const char *socket, struct offer *offer) {
    char reason[512] = "out of memory";
    if (session.stuck)
        return -EBUSY;
    int error = connection_open(&session.connection, socket, offer, reason, sizeof reason);
    if (!error && (error = attach(offer)) != 0) {
        snprintf(reason, sizeof reason, "the ring cannot be mapped (%s)", strerror(-error));
        connection_close(&session.connection);
    }
    session.joined = !error;
    report_begin(&session.connection);
    if (error && session.refused != getpid()) {
        session.refused = getpid();
        complain("%s; this process is not captured", reason);
    }
    return error;
}

static int begin(const char *socket, const void *library, bool driven) {
    struct offer offer;
    int error = join(socket, &offer);
    if (error)
        return error;
    session.library = library;
    if (!dump_register(library, on_chunk)) {
        complain("no library here lets a dump callback register; this process is not captured");
        leave();
        return -ENOSYS;
    }
    if (driven)
        report_driven("aclInit");
    if (driven || !*offer.config)
        return 0;
    aclError code = dump_start(library, offer.config);
    session.started = code == ACL_SUCCESS;
    if (code == ACL_REPEAT_INITIALIZE || code == ACL_DUMP_ALREADY_RUN) {
        report_driven("aclmdlInitDump"); /* somebody had started it before us */
        return 0;
    }
    if (session.started)
        report_configuration_file("agent", "aclmdlSetDump", offer.config);
    else
        complain("the dump configuration %s was refused with code %d", offer.config, code);
    return code;
}

bool session_possible(void) {
    const char *socket = getenv(SOCKET_VARIABLE);
    return socket && *socket;
}

void session_acl_initialized(const void *init, const char *config_path, bool first) {
    if (!session_possible())
        return;
    int saved = lock();
    forget_parent();
    if (!session.joined) {
        struct configuration given;
        configuration_read(&given, config_path);
        bool dumps = configuration_has_dump(&given);
        begin(getenv(SOCKET_VARIABLE), init, dumps);
        if (session.joined && first && (dumps || given.problem))
            report_configuration(&given, "program", "aclInit", config_path);
        configuration_free(&given);
    }
    unlock(saved);
}

/* Stops what we started, once the device has sent what it has. */
static void stop(void) {
    dump_synchronize(session.library);
    if (session.started)
        dump_stop(session.library);
    session.started = false;
}

/* Nothing may be queued any more: the runtime would write it to its disk. */
static void unregister_and_leave(void) {
    /* The program's own callback is registered under our name. */
    if (!atomic_load(&shared))
        dump_unregister(session.library);
    leave();
}

void session_acl_finalizing(bool last) {
    int saved = lock();
    if (session.joined && !ds_forked() && last)
        stop();
    unlock(saved);
}

void session_acl_finalized(bool last) {
    int saved = lock();
    if (session.joined && !ds_forked() && last)
        unregister_and_leave();
    unlock(saved);
}

void session_yield(const char *call) {
    int saved = lock();
    if (session.joined && !ds_forked()) {
        if (session.started)
            stop();
        report_driven(call);
    }
    unlock(saved);
}

void session_configured(const char *call, const char *path) {
    int saved = lock();
    if (session.joined && !ds_forked())
        report_configuration_file("program", call, path);
    unlock(saved);
}

/* For a program that asks by itself */

/* Without aclFinalize nothing says that the queue is empty: the dump server also
 * runs for whoever gave aclInit a configuration. */
static void await_quiet(void) {
    uint64_t deadline = ds_clock_ns() + QUIET_LIMIT_NS, seen, calls = UINT64_MAX;
    do {
        seen = calls;
        nanosleep(&(struct timespec){.tv_nsec = QUIET_NS}, NULL);
        calls = atomic_load(&session.ring.control->callbacks);
    } while (calls != seen && ds_clock_ns() < deadline);
}

int ds_agent_join(const char *socket) {
    int saved = lock();
    forget_parent();
    int result = session.joined ? -EALREADY : begin(socket, NULL, false);
    if (result > 0)
        unregister_and_leave();
    unlock(saved);
    return result;
}

int ds_agent_leave(void) {
    int saved = lock();
    bool joined = session.joined && !ds_forked();
    if (joined) {
        stop();
        await_quiet();
        unregister_and_leave();
    }
    unlock(saved);
    return joined ? 0 : -ENOTCONN;
}

/* Chunks may still come while the process ends, and the ring outlives it: there
 * is nothing to end but what nobody will read. */
__attribute__((destructor)) static void end(void) {
    if (session.joined && !ds_forked())
        report_losses(&session.ring);
}
