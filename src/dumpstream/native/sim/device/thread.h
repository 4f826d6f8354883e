/* Threads that leave all signals to the program, and locks. */
#pragma once

#include <pthread.h>
#include <signal.h>

/* Returns 0 or -errno. */
static inline int thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(*thread, name);
    return -error;
}

static inline pthread_mutex_t *thread_lock(pthread_mutex_t *mutex) {
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void thread_unlock(pthread_mutex_t **mutex) {
    pthread_mutex_unlock(*mutex);
}

/* Holds the mutex to the end of the block. */
#define HOLD(mutex) __attribute__((cleanup(thread_unlock), unused)) pthread_mutex_t *held = thread_lock(mutex)
