/* Threads that leave all signals to the program, and locks. */
#pragma once

#include <pthread.h>

/* Returns 0 or -errno. */
int thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *argument);

static inline pthread_mutex_t *thread_lock(pthread_mutex_t *mutex) {
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void thread_unlock(pthread_mutex_t **mutex) {
    pthread_mutex_unlock(*mutex);
}

/* Holds the mutex to the end of the block. */
#define HOLD(mutex) __attribute__((cleanup(thread_unlock), unused)) pthread_mutex_t *held = thread_lock(mutex)
