#include "job.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dumpstream/agent.h"

#pragma weak ds_agent_step
#define LAST_DESCRIPTOR 64
#define SMALL_STACK (64 << 10)

static _Atomic uint64_t own_chunks;
static uint64_t sent; /* files, of which each is a chunk unless it is large */
static pid_t child;

static int32_t on_own_chunk(const acldumpChunk *chunk, int32_t len) {
    (void)chunk;
    (void)len;
    atomic_fetch_add(&own_chunks, 1);
    return 0;
}

static void say(const char *what, long long value) {
    printf("%s %lld\n", what, value);
    fflush(stdout);
}

static int run(const struct acl *acl, const char *text, const char *steps) {
    char error[256];
    struct dssim_workload *workload = acl->workload_open(text, error, sizeof error);
    if (!workload) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    acl->load(workload);
    uint64_t files = acl->run(strtoull(steps, NULL, 10));
    sent += files;
    say("files", (long long)files);
    return 0;
}

/* Opens sockets with all the numbers again. */
static int close_all(void) {
    int pair[2];
    for (int fd = 3; fd < LAST_DESCRIPTOR; fd++)
        close(fd);
    for (int fd = 3; fd + 1 < LAST_DESCRIPTOR; fd += 2) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) != 0)
            return 1;
    }
    return 0;
}

static int count_strays(void) {
    char byte;
    int strays = 0;
    for (int fd = 3; fd < LAST_DESCRIPTOR; fd++)
        strays += recv(fd, &byte, 1, MSG_DONTWAIT) >= 0;
    return strays;
}

static int end(const char *how) {
    char byte;
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "wait") == 0)
        return read(STDIN_FILENO, &byte, 1) < 0;
    fprintf(stderr, "no such thing: %s\n", how);
    return 1;
}

struct setting {
    const struct acl *acl;
    const char *path;
};

static void *set_dump(void *argument) {
    struct setting *setting = argument;
    say("set_dump", setting->acl->set_dump(setting->path));
    return NULL;
}

static int set_in_thread(const struct acl *acl, const char *path) {
    struct setting setting = {acl, path};
    pthread_attr_t attributes;
    pthread_t thread;
    int failed = pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, SMALL_STACK) ||
                 pthread_create(&thread, &attributes, set_dump, &setting);
    return failed || pthread_join(thread, NULL);
}

static int call_acl(const struct acl *acl, const char *what, const char *value) {
    if (strcmp(what, "init") == 0) {
        errno = E2BIG;
        say("init", acl->init(*value ? value : NULL));
        say("errno kept", errno == E2BIG);
        return acl->set_device(0);
    }
    if (strcmp(what, "finalize") == 0) {
        say("finalize", acl->finalize());
        say("own", (long long)atomic_load(&own_chunks));
    } else if (strcmp(what, "reference") == 0) {
        say("reference", acl->finalize_reference(NULL));
    } else if (strcmp(what, "drive") == 0) {
        say("init_dump", acl->init_dump());
        say("set_dump", acl->set_dump(value));
    } else if (strcmp(what, "set") == 0) {
        say("set_dump", acl->set_dump(*value ? value : NULL));
    } else if (strcmp(what, "thread") == 0) {
        return set_in_thread(acl, value);
    } else if (strcmp(what, "undrive") == 0) {
        say("finalize_dump", acl->finalize_dump());
    } else if (strcmp(what, "register") == 0) {
        say("register", acl->register_callback(on_own_chunk, 0));
    } else {
        return -1;
    }
    return 0;
}

static int do_step(const struct acl *acl, const char *what, const char *value) {
    int result = call_acl(acl, what, value);
    if (result >= 0)
        return result;
    if (strcmp(what, "run") == 0)
        return run(acl, "models=2\nops=4\n", value);
    if (strcmp(what, "eager") == 0)
        return run(acl, "models=1\nops=1\nsingle_ops=2\n", value);
    if (strcmp(what, "step") == 0) {
        /* What is queued would belong to the next step; needs "register". */
        while (atomic_load(&own_chunks) < sent)
            usleep(1000);
        if (ds_agent_step)
            say("step", ds_agent_step(strtoll(value, NULL, 10)));
        return 0;
    }
    if (strcmp(what, "large") == 0)
        return run(acl, "models=1\nops=8\ninputs=0\noutputs=1\ntensor_bytes=8388608\n", value);
    if (strcmp(what, "fork") == 0) {
        child = fork();
        return child < 0;
    }
    if (strcmp(what, "close") == 0)
        return close_all();
    if (strcmp(what, "strays") == 0) {
        say("strays", count_strays());
        return 0;
    }
    return end(what);
}

int job_run(const struct acl *acl, int argc, char **argv) {
    int failed = 0, status = 0;
    for (int i = 1; i < argc && !failed; i++) {
        char *value = strchr(argv[i], '=');
        if (value)
            *value++ = '\0';
        failed = do_step(acl, argv[i], value ? value : "");
    }
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        failed = 1;
    return failed;
}
