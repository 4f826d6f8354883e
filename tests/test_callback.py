"""What the callback costs the runtime's thread: one copy, and neither Python's lock nor memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

# Preloaded, it counts what the calling thread allocates and copies while it calls the callback.
_CALLER = r"""
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static _Thread_local int counting __attribute__((tls_model("initial-exec")));
static long allocations, copied;
void *malloc(size_t size) { allocations += counting; return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { allocations += counting; return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { allocations += counting; return __libc_realloc(old, size); }
void *memmove(void *to, const void *from, size_t size) {
    char *target = to;
    const char *source = from;
    copied += counting ? (long)size : 0;
    for (size_t i = 0; i < size; i++) {
        size_t at = target < source ? i : size - 1 - i;
        target[at] = source[at];
    }
    return to;
}
void *memcpy(void *to, const void *from, size_t size) { return memmove(to, from, size); }

static struct {
    char name[4096];
    uint32_t length, last;
    int64_t offset;
    int32_t flag;
    char data[100004];
} chunk = {.name = "file", .length = 100000, .offset = -1};
static int32_t (*callback)(const void *, int32_t);

static void *call_often(void *refused) {
    counting = 1;
    for (int i = 0; i < 100; i++)
        *(int *)refused += callback(&chunk, 4120 + 100000) != 0;
    counting = 0;
    return refused;
}

/* Returns how many calls were refused; the caller waits for them with Python's lock held. */
int run(int32_t (*function)(const void *, int32_t)) {
    pthread_t thread;
    int refused = 0;
    callback = function;
    if (pthread_create(&thread, NULL, call_often, &refused) != 0 || pthread_join(thread, NULL) != 0)
        return -1;
    return refused;
}

long allocated(void) { return allocations; }
long copied_bytes(void) { return copied; }
"""

# A PyDLL keeps Python's lock during the call. Most chunks find the ring full.
_HOLDING_THE_LOCK = """
import ctypes, sys
import anyio
from dumpstream.source import RingOptions, RingSource

async def main():
    async with RingSource(RingOptions(buffer_bytes=int(sys.argv[2]), on_full="drop")) as source:
        caller = ctypes.PyDLL(sys.argv[1])
        refused = caller.run(ctypes.c_void_p(source.callback_address))
        print(refused, caller.allocated(), caller.copied_bytes())

anyio.run(main)
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose thread calls the callback, and that counts allocations."""
    directory = tmp_path_factory.mktemp("caller")
    (directory / "caller.c").write_text(_CALLER)
    command = ["cc", "-shared", "-fPIC", "-pthread", "-fno-builtin", "-o", "caller.so", "caller.c"]
    subprocess.run(command, cwd=directory, check=True)
    return directory / "caller.so"


def call_often(caller: Path, ring_bytes: int) -> list[int]:
    """Return how many of 100 chunks of 100,000 bytes were refused, the allocations, and the bytes copied."""
    done = subprocess.run(
        [sys.executable, "-c", _HOLDING_THE_LOCK, str(caller), str(ring_bytes)],
        env={**os.environ, "LD_PRELOAD": str(caller)},
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(number) for number in done.stdout.split()]


def test_callback_needs_neither_the_lock_of_python_nor_memory(caller: Path) -> None:
    refused, allocated, _ = call_often(caller, 1 << 20)

    assert 0 < refused < 100
    assert allocated == 0


def test_callback_copies_once(caller: Path) -> None:
    refused, _, copied = call_often(caller, 32 << 20)

    assert refused == 0
    assert 100 * 100_000 <= copied < 101 * 100_000
