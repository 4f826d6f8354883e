from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.source import OnFull

if TYPE_CHECKING:
    from pathlib import Path

CALLER = r"""
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static struct {
    char name[4096];
    uint32_t length, last;
    int64_t offset;
    int32_t flag;
    char data[1000];
} chunk;
static int32_t (*callback)(const void *, int32_t);

static void *call_forever(void *argument) {
    for (;;)
        callback(&chunk, 4120 + 996);
    return argument;
}

int start(int32_t (*function)(const void *, int32_t)) {
    pthread_t thread;
    callback = function;
    strcpy(chunk.name, "file");
    chunk.length = 996;
    chunk.last = 1;
    chunk.offset = -1;
    return pthread_create(&thread, NULL, call_forever, NULL);
}
"""

EXITING = """
import ctypes, sys
import anyio
from dumpstream.source import RingOptions, RingSource

async def main():
    source = RingSource(RingOptions(buffer_bytes=65536, on_full=sys.argv[2]))
    await source.__aenter__()
    ctypes.CDLL(sys.argv[1]).start(ctypes.c_void_p(source.callback_address))
    while source.statistics().fill < 60000:
        await anyio.sleep(0)

anyio.run(main)
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose thread calls the callback until the process is gone."""
    directory = tmp_path_factory.mktemp("caller")
    (directory / "caller.c").write_text(CALLER)
    command = ["cc", "-shared", "-fPIC", "-pthread", "-o", "caller.so", "caller.c"]
    subprocess.run(command, cwd=directory, check=True)
    return directory / "caller.so"


@pytest.mark.parametrize("on_full", list(OnFull))
def test_process_exits_cleanly_while_a_thread_still_calls(caller: Path, on_full: OnFull) -> None:
    command = [sys.executable, "-c", EXITING, str(caller), on_full]

    done = subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
