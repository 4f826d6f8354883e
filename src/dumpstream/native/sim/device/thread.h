/* Starts threads that leave all signals to the program. */
#ifndef DSSIM_THREAD_H
#define DSSIM_THREAD_H

#include <pthread.h>

/* Returns 0 or -errno. */
int thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *argument);

#endif
