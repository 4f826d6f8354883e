#include "configuration.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "dumpstream/ring.h"

#define MIB (1u << 20)
#define LIMIT_NS 30000000000u
#define SHORT_NS 50000000u

static char directory[] = "/tmp/configuration-test-XXXXXX";
static char path[64];

static const struct circumstances CALL = {"program", "aclmdlSetDump", path, 3};

static void write_file(const char *bytes, size_t length) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQUAL(write(fd, bytes, length), length);
    close(fd);
}

static struct configuration read_text(const char *bytes, size_t length) {
    struct configuration configuration;
    write_file(bytes, length);
    configuration_read(&configuration, path);
    return configuration;
}

/* Makes two ends of a connection. */
static struct connection connect_pair(int *peer) {
    struct connection connection;
    struct stat status;
    int ends[2];
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    CHECK_EQUAL(fstat(ends[0], &status), 0);
    connection = (struct connection){ends[0], status.st_dev, status.st_ino};
    *peer = ends[1];
    return connection;
}

static const char *field(const char *packet, size_t length, const char *key) {
    for (const char *at = packet; at < packet + length; at += strlen(at) + 1) {
        if (strncmp(at, key, strlen(key)) == 0 && at[strlen(key)] == '=')
            return at + strlen(key) + 1;
    }
    return NULL;
}

/* What a collector assembles from packets. */
struct hearing {
    int fd;
    unsigned packets;
    size_t length;
    char text[MIB + 1];
};

static void *hear(void *argument) {
    static char packet[64 << 10];
    struct hearing *hearing = argument;
    ssize_t length;
    while ((length = recv(hearing->fd, packet, sizeof packet, 0)) > 0) {
        const char *text = field(packet, (size_t)length, "text");
        CHECK_EQUAL(packet[length - 1], 0);
        CHECK_EQUAL(strcmp(packet, "config"), 0);
        CHECK(text && strtoul(field(packet, (size_t)length, "offset"), NULL, 10) == hearing->length);
        CHECK(hearing->length + strlen(text) <= MIB);
        memcpy(hearing->text + hearing->length, text, strlen(text));
        hearing->length += strlen(text);
        hearing->packets++;
    }
    return NULL;
}

static void check_problem(const char *where, const char *problem) {
    struct configuration configuration;
    configuration_read(&configuration, where);
    CHECK(!configuration.text);
    CHECK(problem ? strcmp(configuration.problem, problem) == 0 : !configuration.problem);
    CHECK(!configuration_has_dump(&configuration));
    configuration_free(&configuration);
}

static void test_a_path_without_a_regular_file_is_a_problem_and_does_not_wait(void) {
    char fifo[80], name[8192];
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    CHECK_EQUAL(mkfifo(fifo, 0600), 0);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';

    check_problem(NULL, NULL);
    check_problem("", NULL);
    check_problem("/nowhere/acl.json", strerror(ENOENT));
    check_problem(name, strerror(ENAMETOOLONG));
    check_problem(directory, "it is not a regular file");
    check_problem(fifo, "it is not a regular file");
    check_problem("/dev/zero", "it is not a regular file");
    check_problem("/proc/self/mem", strerror(EIO));
    unlink(fifo);
}

static void test_file_larger_than_cann_takes_is_not_read(void) {
    write_file("", 0);
    CHECK_EQUAL(truncate(path, 10 * MIB + 1), 0);

    check_problem(path, "it has more than 10 MiB");
}

static void test_dump_section_is_found_by_its_key(void) {
    static const struct {
        const char *text;
        bool has;
    } cases[] = {{"{\"dump\": {}}", true},    {"{\"a\": \"dump\", \"dump\" \n\t: 1}", true},
                 {"{\"dumps\": 1}", false},   {"{\"err_msg_mode\": \"dump\"}", false},
                 {"\xff\"dump\"\xfe", false}, {"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct configuration configuration = read_text(cases[i].text, strlen(cases[i].text));

        CHECK_EQUAL(configuration_has_dump(&configuration), cases[i].has);
        configuration_free(&configuration);
    }
}

static void test_longest_text_arrives_in_pieces_as_it_was(void) {
    static struct hearing hearing;
    static char text[MIB];
    pthread_t thread;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(1 + i * 7919 % 255);
    struct configuration configuration = read_text(text, sizeof text);
    struct connection connection = connect_pair(&hearing.fd);
    CHECK_EQUAL(pthread_create(&thread, NULL, hear, &hearing), 0);

    bool taken = configuration_send(&configuration, &CALL, &connection, ds_clock_ns() + LIMIT_NS);

    connection_close(&connection);
    pthread_join(thread, NULL);
    CHECK(taken);
    CHECK_EQUAL(hearing.length, sizeof text);
    CHECK_EQUAL(memcmp(hearing.text, text, sizeof text), 0);
    CHECK(hearing.packets > 16);
    close(hearing.fd);
    configuration_free(&configuration);
}

/* Sends a configuration in one packet, and returns a field of it. */
static const char *told(const struct configuration *configuration, const char *key) {
    static char packet[64 << 10];
    char more;
    int peer;
    struct connection connection = connect_pair(&peer);
    CHECK(configuration_send(configuration, &CALL, &connection, 0));
    ssize_t length = recv(peer, packet, sizeof packet, MSG_DONTWAIT);
    CHECK(length > 0 && packet[length - 1] == '\0');
    CHECK(recv(peer, &more, 1, MSG_DONTWAIT) < 0);
    connection_close(&connection);
    close(peer);
    return field(packet, (size_t)length, key);
}

static void test_short_text_is_one_packet_with_who_and_how(void) {
    struct configuration configuration = read_text("{}", 2), empty = {.text = configuration.text};

    CHECK_EQUAL(strcmp(told(&configuration, "text"), "{}"), 0);
    CHECK_EQUAL(strcmp(told(&configuration, "size"), "2"), 0);
    CHECK_EQUAL(strcmp(told(&configuration, "by"), "program"), 0);
    CHECK_EQUAL(strcmp(told(&configuration, "call"), "aclmdlSetDump"), 0);
    CHECK_EQUAL(strcmp(told(&configuration, "path"), path), 0);
    CHECK_EQUAL(strcmp(told(&configuration, "lost"), "3"), 0);
    CHECK(!told(&configuration, "problem"));
    CHECK_EQUAL(strcmp(told(&empty, "text"), ""), 0);
    configuration_free(&configuration);
}

static void test_text_that_cannot_be_told_is_told_of(void) {
    static char large[MIB + 1];
    memset(large, ' ', sizeof large);
    struct configuration longer = read_text(large, sizeof large), with_nul = read_text("{\0}", 3), none;
    configuration_read(&none, "/nowhere/acl.json");

    CHECK_EQUAL(strcmp(told(&longer, "problem"), "it has more than 1 MiB"), 0);
    CHECK_EQUAL(strcmp(told(&with_nul, "problem"), "it has a NUL in it"), 0);
    CHECK_EQUAL(strcmp(told(&none, "problem"), strerror(ENOENT)), 0);
    CHECK(!told(&longer, "text"));
    configuration_free(&longer);
    configuration_free(&with_nul);
}

static void test_collector_that_does_not_read_is_waited_for_until_the_deadline(void) {
    static char large[MIB];
    int peer;
    memset(large, ' ', sizeof large);
    struct configuration configuration = read_text(large, sizeof large);
    struct connection connection = connect_pair(&peer);
    uint64_t deadline = ds_clock_ns() + SHORT_NS;

    bool taken = configuration_send(&configuration, &CALL, &connection, deadline);
    bool ended_late = ds_clock_ns() >= deadline;
    bool taken_later = configuration_send(&configuration, &CALL, &connection, 0);

    CHECK(!taken && ended_late && !taken_later);
    connection_close(&connection);
    close(peer);
    configuration_free(&configuration);
}

static void test_call_that_named_no_file_is_told_all_the_same(void) {
    struct configuration none;
    struct circumstances nameless = {"program", "aclmdlSetDump", NULL, 0};
    char packet[4096];
    int peer;
    struct connection connection = connect_pair(&peer);
    configuration_read(&none, NULL);

    CHECK(configuration_send(&none, &nameless, &connection, 0));

    ssize_t length = recv(peer, packet, sizeof packet, MSG_DONTWAIT);
    CHECK(length > 0 && packet[length - 1] == '\0');
    CHECK_EQUAL(strcmp(field(packet, (size_t)length, "path"), ""), 0);
    connection_close(&connection);
    close(peer);
}

static void test_a_collector_that_is_gone_is_not_an_error(void) {
    int peer;
    struct configuration configuration = read_text("{}", 2);
    struct connection connection = connect_pair(&peer), none = {.fd = -1};
    struct connection taken = {connection.fd, connection.device, connection.inode + 1};

    CHECK(!configuration_send(&configuration, &CALL, &none, 0));
    CHECK(!configuration_send(&configuration, &CALL, &taken, 0));
    close(peer);
    CHECK(!configuration_send(&configuration, &CALL, &connection, ds_clock_ns() + LIMIT_NS));
    connection_close(&connection);
    configuration_free(&configuration);
}

int main(void) {
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/acl.json", directory);
    test_a_path_without_a_regular_file_is_a_problem_and_does_not_wait();
    test_file_larger_than_cann_takes_is_not_read();
    test_dump_section_is_found_by_its_key();
    test_longest_text_arrives_in_pieces_as_it_was();
    test_short_text_is_one_packet_with_who_and_how();
    test_text_that_cannot_be_told_is_told_of();
    test_collector_that_does_not_read_is_waited_for_until_the_deadline();
    test_call_that_named_no_file_is_told_all_the_same();
    test_a_collector_that_is_gone_is_not_an_error();
    unlink(path);
    rmdir(directory);
    return 0;
}
