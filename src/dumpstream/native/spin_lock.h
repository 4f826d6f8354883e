/* A lock that is held for a few instructions, also on the runtime's thread. */
#pragma once

#include <sched.h>
#include <stdatomic.h>

static inline void spin_lock(atomic_flag *flag) {
    while (atomic_flag_test_and_set_explicit(flag, memory_order_acquire))
        sched_yield();
}

static inline void spin_unlock(atomic_flag *flag) {
    atomic_flag_clear_explicit(flag, memory_order_release);
}
