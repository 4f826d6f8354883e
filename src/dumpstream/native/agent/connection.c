#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PROTOCOL_VERSION "2"
/* On a busy machine a collector may need seconds to give each of many processes its ring. Starting a minute
 * late is better than not being captured. */
#define ANSWER_LIMIT_NS 60000000000u
#define RETRY_NS 10000000
/* The collector sends one descriptor. Of a message with more, all are closed. */
#define MAX_DESCRIPTORS 8

/* The variables that say which rank the process has in its job, and those that switch exception dumps on. */
static const char *const TOLD_VARIABLES[] = {"RANK",
                                             "RANK_ID",
                                             "MS_NODE_ID",
                                             "LOCAL_RANK",
                                             "DEVICE_ID",
                                             "WORLD_SIZE",
                                             "OMPI_COMM_WORLD_RANK",
                                             "RANK_TABLE",
                                             "LOCAL_WORLD_SIZE",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                                             "ASCEND_DUMP_SCENE",
                                             "NPU_COLLECT_PATH"};

void complain(const char *format, ...) {
    char line[1024] = "dumpstream: ";
    size_t start = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + start, sizeof line - start - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written; /* there is no other place to write it to */
}

/* Packets */

void packet_begin(struct packet *packet, const char *type) {
    packet->length = 0;
    packet_add(packet, "%s", type);
}

void packet_add(struct packet *packet, const char *format, ...) {
    size_t room = sizeof packet->bytes - packet->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(packet->bytes + packet->length, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room)
        packet->length += (size_t)length + 1;
}

/* The command line as the kernel knows it, without the end if it is long. */
static void add_command(struct packet *packet) {
    char text[32 << 10];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return;
    text[length] = '\0';
    for (const char *at = text; at < text + length; at += strlen(at) + 1)
        packet_add(packet, "argv=%s", at);
}

static void introduce(struct packet *packet) {
    char directory[PATH_MAX];
    packet_begin(packet, "hello");
    packet_add(packet, "version=" PROTOCOL_VERSION);
    packet_add(packet, "pid=%d", (int)getpid());
    packet_add(packet, "parent=%d", (int)getppid());
    if (getcwd(directory, sizeof directory))
        packet_add(packet, "cwd=%s", directory);
    for (size_t i = 0; i < sizeof TOLD_VARIABLES / sizeof *TOLD_VARIABLES; i++) {
        const char *value = getenv(TOLD_VARIABLES[i]);
        if (value)
            packet_add(packet, "env.%s=%s", TOLD_VARIABLES[i], value);
    }
    add_command(packet);
}

/* Returns the value of a field, or NULL. The last byte of the packet must be NUL. */
static const char *packet_get(const struct packet *packet, const char *key) {
    const char *end = packet->bytes + packet->length;
    size_t length = strlen(key);
    for (const char *at = packet->bytes; at < end; at += strlen(at) + 1) {
        if (strncmp(at, key, length) == 0 && at[length] == '=')
            return at + length + 1;
    }
    return NULL;
}

static bool packet_number(const struct packet *packet, const char *key, uint64_t *number) {
    char *end;
    const char *value = packet_get(packet, key);
    if (!value || *value < '0' || *value > '9')
        return false;
    errno = 0;
    *number = strtoull(value, &end, 10);
    return errno == 0 && *end == '\0';
}

/* The socket */

static bool is_ours(const struct connection *connection) {
    struct stat status;
    return connection->fd >= 0 && fstat(connection->fd, &status) == 0 && S_ISSOCK(status.st_mode) &&
           status.st_dev == connection->device && status.st_ino == connection->inode;
}

/* Waits for `events`; false: they did not come before the deadline. */
static bool wait_for(int fd, short events, uint64_t deadline_ns) {
    struct pollfd watched = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = ds_clock_ns();
        if (now >= deadline_ns)
            return false;
        int found = poll(&watched, 1, (int)((deadline_ns - now) / 1000000u) + 1);
        if (found > 0)
            return true;
        if (found < 0 && errno != EINTR)
            return false;
    }
}

static int connect_to(struct connection *connection, const char *path, uint64_t deadline_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    *connection = (struct connection){.fd = fd};
    while (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || ds_clock_ns() >= deadline_ns)
            return -errno;
        /* Too many processes connect at once, and poll cannot wait for a socket of this kind. */
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
    if (fstat(fd, &status) != 0)
        return -errno;
    connection->device = status.st_dev;
    connection->inode = status.st_ino;
    return 0;
}

static int send_packet(int fd, const struct packet *packet, uint64_t deadline_ns) {
    for (;;) {
        if (send(fd, packet->bytes, packet->length, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
        if (!wait_for(fd, POLLOUT, deadline_ns))
            return -ETIMEDOUT;
    }
}

/* Receives a packet, and the descriptor that came with it, or -1. */
static int receive_packet(int fd, struct packet *packet, int *received, uint64_t deadline_ns) {
    union {
        char bytes[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
        struct cmsghdr alignment;
    } control;
    struct iovec data = {.iov_base = packet->bytes, .iov_len = sizeof packet->bytes};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    *received = -1;
    if (!wait_for(fd, POLLIN, deadline_ns))
        return -ETIMEDOUT;
    ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (length < 0)
        return -errno;
    unsigned count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            if (count++ > 0)
                close(*received);
            memcpy(received, CMSG_DATA(part) + at, sizeof(int));
        }
    }
    packet->length = (size_t)length;
    bool whole =
        length > 0 && packet->bytes[length - 1] == '\0' && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (whole && count <= 1)
        return 0;
    if (count > 0)
        close(*received);
    return length == 0 ? -ECONNRESET : -EBADMSG;
}

/* The answer */

static int accept_offer(const struct packet *answer, int ring_fd, struct offer *offer) {
    uint64_t block;
    const char *config = packet_get(answer, "config");
    bool sound = ring_fd >= 0 && packet_number(answer, "size", &offer->size) &&
                 packet_number(answer, "block", &block) && block <= 1 &&
                 packet_number(answer, "block_ns", &offer->policy.block_limit_ns) &&
                 packet_number(answer, "max_file_bytes", &offer->policy.max_file_bytes) &&
                 (!config || strlen(config) < sizeof offer->config);
    if (!sound)
        return -EBADMSG;
    offer->ring_fd = ring_fd;
    offer->policy.block = block == 1;
    strcpy(offer->config, config ? config : "");
    return 0;
}

static int read_answer(const struct packet *answer, int ring_fd, struct offer *offer) {
    if (strcmp(answer->bytes, "ring") == 0 && accept_offer(answer, ring_fd, offer) == 0)
        return 0;
    if (ring_fd >= 0)
        close(ring_fd);
    const char *refusal = packet_get(answer, "reason");
    bool refused = strcmp(answer->bytes, "refused") == 0;
    snprintf(offer->reason, sizeof offer->reason, "%s",
             refused && refusal ? refusal
                                : "the collector's answer cannot be read; is it of another version?");
    return refused ? -ECONNREFUSED : -EBADMSG;
}

static int converse(struct connection *connection, const char *path, struct packet *packet, int *ring_fd) {
    uint64_t deadline = ds_clock_ns() + ANSWER_LIMIT_NS;
    int error = connect_to(connection, path, deadline);
    if (!error) {
        introduce(packet);
        error = send_packet(connection->fd, packet, deadline);
    }
    return error ? error : receive_packet(connection->fd, packet, ring_fd, deadline);
}

int connection_open(struct connection *connection, const char *path, struct offer *offer) {
    int ring_fd = -1;
    connection->fd = -1;
    strcpy(offer->reason, "out of memory");
    struct packet *packet = malloc(sizeof *packet);
    if (!packet)
        return -ENOMEM;
    int error = converse(connection, path, packet, &ring_fd);
    if (error)
        snprintf(offer->reason, sizeof offer->reason, "no answer from a collector at %s (%s)", path,
                 strerror(-error));
    else
        error = read_answer(packet, ring_fd, offer);
    free(packet);
    if (error)
        connection_close(connection);
    return error;
}

void connection_close(struct connection *connection) {
    if (connection->fd >= 0 && (connection->inode == 0 || is_ours(connection)))
        close(connection->fd);
    connection->fd = -1;
}

bool connection_send(const struct connection *connection, const struct packet *packet, uint64_t deadline_ns) {
    return is_ours(connection) && send_packet(connection->fd, packet, deadline_ns) == 0;
}

void connection_wake(const struct connection *connection) {
    static const char wake[] = "wake";
    if (is_ours(connection))
        send(connection->fd, wake, sizeof wake, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool connection_is_gone(const struct connection *connection) {
    struct pollfd watched = {.fd = connection->fd, .events = 0};
    return is_ours(connection) && poll(&watched, 1, 0) == 1 && watched.revents & (POLLHUP | POLLERR);
}
