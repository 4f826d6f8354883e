/* The compute of a training job: kernels that run while a thread of the runtime drives the
 * device, and a callback that does nothing. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "dumpstream/acl_abi.h"

#define KERNEL_FLOATS (64 << 10) /* 256 KiB: what a core keeps for itself */

typedef uint64_t (*run_steps)(uint64_t steps);

/* Runs steps on the device, with the affinity of the thread that started it. */
struct device {
    run_steps run;
    pthread_t thread;
    sem_t begin;
    sem_t done;
    bool ending;
};

float bench_kernel(uint64_t rounds);
int bench_device_start(struct device *device, run_steps run);
void bench_device_begin(struct device *device);
void bench_device_wait(struct device *device);
void bench_device_stop(struct device *device);
uint64_t bench_device_bytes(void);
int32_t bench_ignore(const acldumpChunk *chunk, int32_t len);

static float weights[KERNEL_FLOATS], activations[KERNEL_FLOATS];

/* Some arithmetic, the same for the same number of rounds. */
float bench_kernel(uint64_t rounds) {
    float sum = 0;
    for (uint64_t round = 0; round < rounds; round++)
        for (int i = 0; i < KERNEL_FLOATS; i++) {
            activations[i] = activations[i] * 0.5f + weights[i] + 1.0f;
            sum += activations[i];
        }
    return sum;
}

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0 && errno == EINTR)
        ;
}

static void *device_main(void *argument) {
    struct device *device = argument;
    wait_for(&device->begin);
    while (!device->ending) {
        device->run(1);
        sem_post(&device->done);
        wait_for(&device->begin);
    }
    return NULL;
}

/* Returns 0 or an error number. */
int bench_device_start(struct device *device, run_steps run) {
    device->run = run;
    device->ending = false;
    sem_init(&device->begin, 0, 0);
    sem_init(&device->done, 0, 0);
    return pthread_create(&device->thread, NULL, device_main, device);
}

/* Lets the device run a step. */
void bench_device_begin(struct device *device) {
    sem_post(&device->begin);
}

/* Waits for the step that began last. */
void bench_device_wait(struct device *device) {
    wait_for(&device->done);
}

void bench_device_stop(struct device *device) {
    device->ending = true;
    sem_post(&device->begin);
    pthread_join(device->thread, NULL);
}

uint64_t bench_device_bytes(void) {
    return sizeof(struct device);
}

/* A callback that takes a chunk and does nothing. */
int32_t bench_ignore(const acldumpChunk *chunk, int32_t len) {
    (void)chunk;
    (void)len;
    return 0;
}
