#include "report.h"

#include <inttypes.h>
#include <unistd.h>

#include "libraries.h"

#define SEND_LIMIT_NS 1000000000u

static struct collector {
    const struct connection *connection;
    bool driven; /* the collector knows that the program drives the dump */
    bool deaf;   /* the collector did not take the latest report */
    uint64_t lost_configurations;
} collector;

/* The packet at hand. Not on the stack: a thread of the program may have too little of it. */
static struct packet packet;

void report_begin(const struct connection *connection) {
    collector = (struct collector){.connection = connection};
}

static uint64_t send_deadline(void) {
    return collector.deaf ? 0 : ds_clock_ns() + SEND_LIMIT_NS;
}

static void send_packet(void) {
    collector.deaf = !connection_send(collector.connection, &packet, send_deadline());
}

void report_call(const char *call, const void *function, aclError code) {
    packet_begin(&packet, "acl");
    packet_add(&packet, "call=%s", call);
    packet_add(&packet, "library=%s", library_of(function));
    packet_add(&packet, "code=%d", code);
    send_packet();
}

void report_driven(const char *call) {
    if (collector.driven)
        return;
    collector.driven = true;
    packet_begin(&packet, "driven");
    packet_add(&packet, "call=%s", call);
    send_packet();
}

void report_configuration(const struct configuration *configuration, const char *by, const char *call,
                          const char *path) {
    struct circumstances circumstances = {by, call, path, collector.lost_configurations};
    collector.deaf =
        !configuration_send(configuration, &circumstances, collector.connection, send_deadline());
    collector.lost_configurations += collector.deaf;
}

void report_configuration_file(const char *by, const char *call, const char *path) {
    struct configuration configuration;
    configuration_read(&configuration, path);
    report_configuration(&configuration, by, call, path);
    configuration_free(&configuration);
}

static uint64_t sum_of(const uint64_t by_cause[DS_CAUSE_COUNT]) {
    uint64_t sum = 0;
    for (unsigned cause = 0; cause < DS_CAUSE_COUNT; cause++)
        sum += by_cause[cause];
    return sum;
}

void report_losses(const struct ds_ring *ring) {
    struct ds_counters counters;
    ds_ring_count(ring, &counters);
    uint64_t lost = sum_of(counters.lost_chunks);
    if (connection_is_gone(collector.connection) && (lost || counters.fill))
        complain("the collector is gone; of %" PRIu64 " chunks of process %d, %" PRIu64 " (%" PRIu64
                 " bytes) were refused and %" PRIu64 " bytes were left unread",
                 counters.callbacks, (int)getpid(), lost, sum_of(counters.lost_bytes), counters.fill);
    else if (collector.deaf && collector.lost_configurations)
        complain("the collector does not read; %" PRIu64
                 " configurations of process %d are not in its manifest",
                 collector.lost_configurations, (int)getpid());
}

void report_bye(const struct ds_ring *ring) {
    struct ds_counters counters;
    ds_ring_count(ring, &counters);
    packet_begin(&packet, "bye");
    packet_add(&packet, "callbacks=%" PRIu64, counters.callbacks);
    packet_add(&packet, "lost=%" PRIu64, sum_of(counters.lost_chunks));
    packet_add(&packet, "lost_bytes=%" PRIu64, sum_of(counters.lost_bytes));
    packet_add(&packet, "lost_configurations=%" PRIu64, collector.lost_configurations);
    send_packet();
    report_losses(ring);
}
