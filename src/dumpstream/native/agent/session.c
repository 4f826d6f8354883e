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
    bool started;  /* the agent has started the dump, and must stop it */
    bool stuck;    /* a callback never returned: the ring stays mapped, and there is no other */
    pid_t refused; /* the process that has complained that it is not captured */
    const void *library;
    struct connection connection;
    struct ds_ring ring;
} session = {.connection = {.fd = -1}};

static _Atomic(acldumpCallback) shared;

/* The lock contains the number of the process that holds it. A child that was forked
 * while the lock was held finds its parent's number and takes the lock. The callback
 * never holds it. */
static _Atomic pid_t holder;
static _Thread_local bool working;

bool session_is_working(void) {
    return working;
}

/* Takes the lock, and returns errno for unlock to restore. */
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

static void unlock(const int *saved) {
    dlerror(); /* the program must not see the errors of the agent's searches */
    working = false;
    atomic_store(&holder, 0);
    errno = *saved;
}

/* Holds the lock to the end of the block. */
#define HOLD_SESSION __attribute__((cleanup(unlock), unused)) int saved = lock()

/* Whether this process has joined its collector, and not only its parent. */
static bool has_joined(void) {
    return session.joined && !ds_forked();
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

static bool collector_alive(struct ds_ring *ring) {
    (void)ring;
    return !connection_is_gone(&session.connection);
}

acldumpCallback session_share(acldumpCallback callback) {
    acldumpCallback none = NULL;
    /* As in the runtime, the first callback stays. */
    atomic_compare_exchange_strong(&shared, &none, callback);
    return on_chunk;
}

bool session_unshare(void) {
    HOLD_SESSION;
    atomic_store(&shared, NULL);
    return !has_joined();
}

/* Joining and leaving */

static void leave(void) {
    session.joined = false;
    session.stuck = ds_detach(&session.ring, DETACH_LIMIT_NS) != 0;
    if (!session.stuck)
        ds_note_refused(&session.ring);
    report_bye(&session.ring);
    if (session.stuck)
        return; /* the call inside the ring may still wake the collector */
    connection_close(&session.connection);
    ds_ring_destroy(&session.ring);
}

/* A child starts without a session: the ring is not mapped in it, and the socket
 * belongs to its parent. */
static void forget_parent(void) {
    if (!ds_forked())
        return;
    connection_close(&session.connection);
    session.joined = session.started = session.stuck = false;
}

/* The collector takes an open socket as a sign that the process is alive. A child must
 * therefore not keep the socket of a parent that ends or becomes another program. */
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
    session.ring.reader_alive = collector_alive;
    error = ds_attach(&session.ring, &offer->policy);
    if (error)
        ds_ring_destroy(&session.ring);
    return error;
}

static int join(const char *socket, struct offer *offer) {
    if (session.stuck)
        return -EBUSY;
    int error = connection_open(&session.connection, socket, offer);
    if (!error && (error = attach(offer)) != 0) {
        snprintf(offer->reason, sizeof offer->reason, "the ring cannot be mapped (%s)", strerror(-error));
        connection_close(&session.connection);
    }
    session.joined = !error;
    report_begin(&session.connection);
    if (error && session.refused != getpid()) {
        session.refused = getpid();
        complain("%s; this process is not captured", offer->reason);
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
        complain("no library in this process can register a dump callback; this process is not captured");
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
        report_driven("aclmdlInitDump"); /* the program had started it before */
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
    HOLD_SESSION;
    forget_parent();
    if (session.joined)
        return;
    struct configuration given;
    configuration_read(&given, config_path);
    bool dumps = configuration_has_dump(&given);
    begin(getenv(SOCKET_VARIABLE), init, dumps);
    if (session.joined && first && (dumps || given.problem))
        report_configuration(&given, "program", "aclInit", config_path);
    configuration_free(&given);
}

/* Waits until the device has sent everything, then stops the dump if the agent started it. */
static void stop(void) {
    dump_synchronize(session.library);
    if (session.started)
        dump_stop(session.library);
    session.started = false;
}

/* To be called when nothing is queued any more: the runtime would write it to disk. */
static void unregister_and_leave(void) {
    /* The runtime knows the program's callback as the agent's: both go through on_chunk. */
    if (!atomic_load(&shared))
        dump_unregister(session.library);
    leave();
}

void session_acl_finalizing(bool last) {
    HOLD_SESSION;
    if (has_joined() && last)
        stop();
}

void session_acl_finalized(bool last) {
    HOLD_SESSION;
    if (has_joined() && last)
        unregister_and_leave();
}

void session_yield(const char *call) {
    HOLD_SESSION;
    if (!has_joined())
        return;
    if (session.started)
        stop();
    report_driven(call);
}

void session_configured(const char *call, const char *path) {
    HOLD_SESSION;
    if (has_joined())
        report_configuration_file("program", call, path);
}

/* For a program that joins by itself */

/* Waits until no chunk has come for a while. Without aclFinalize there is no sign that the
 * queue is empty: the dump server may go on, because aclInit was given a configuration. */
static void await_quiet(void) {
    uint64_t deadline = ds_clock_ns() + QUIET_LIMIT_NS, seen, calls = UINT64_MAX;
    do {
        seen = calls;
        nanosleep(&(struct timespec){.tv_nsec = QUIET_NS}, NULL);
        calls = atomic_load(&session.ring.control->callbacks);
    } while (calls != seen && ds_clock_ns() < deadline);
}

int ds_agent_join(const char *socket) {
    HOLD_SESSION;
    forget_parent();
    int result = session.joined ? -EALREADY : begin(socket, NULL, false);
    if (result > 0)
        unregister_and_leave();
    return result;
}

int ds_agent_leave(void) {
    HOLD_SESSION;
    if (!has_joined())
        return -ENOTCONN;
    stop();
    await_quiet();
    unregister_and_leave();
    return 0;
}

/* Without the lock: the callback may run at the same time, and ds_detach waits for both. */
int ds_agent_step(int64_t step) {
    int saved = errno;
    int result = ds_mark_step(step);
    errno = saved;
    return result;
}

/* Chunks may still come while the process ends, and the ring outlives the process. All that
 * is left to do is to report what the collector will never read. */
__attribute__((destructor)) static void end(void) {
    if (has_joined())
        report_losses(&session.ring);
}
