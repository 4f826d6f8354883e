"""Forked children, each in a process of its own: pytest's must not be forked."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import LIMIT_S

#: What every script begins with: the callback called as CANN does, and the end of a child checked.
PRELUDE = """
import ctypes, gc, multiprocessing, os, struct, sys
import anyio
from dumpstream import _native
from dumpstream.source import OnFull, RingOptions, RingSource

OPTIONS = RingOptions(buffer_bytes=65536, on_full=OnFull.DROP)
callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(_native.callback_address())

def send(name):
    chunk = struct.pack("<4096sIIqi", name, 4, 1, -1, 0) + b"data" + bytes(4)
    return callback(chunk, len(chunk))

async def receive_names(source):
    await source.stop()
    return [chunk.name async for batch in source for chunk in batch.chunks]

async def capture(name):
    async with RingSource(OPTIONS) as source:
        assert send(name) == 0
        assert await receive_names(source) == [name.decode()]

def in_child(body):
    child = os.fork()
    if child == 0:
        try:
            body()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
"""


def run(script: str) -> str:
    command = [sys.executable, "-W", "error", "-c", PRELUDE + script]
    done = subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_child_s_calls_are_refused_and_the_parent_goes_on() -> None:
    run("""
def child():
    assert send(b"child") != 0

async def main():
    async with RingSource(OPTIONS) as source:
        assert send(b"before") == 0
        in_child(child)
        assert send(b"after") == 0
        assert await receive_names(source) == ["before", "after"]
        assert source.statistics().callbacks == 2

anyio.run(main)
""")


def test_child_can_capture_for_itself() -> None:
    run("""
def child():
    anyio.run(capture, b"child")
    assert send(b"late") != 0

async def main():
    async with RingSource(OPTIONS) as source:
        assert send(b"parent") == 0
        in_child(child)
        assert await receive_names(source) == ["parent"]

anyio.run(main)
""")


def test_child_cannot_use_the_parent_s_ring_and_drops_it_safely() -> None:
    run("""
ring = _native.Ring(65536)
ring.attach(False, 0, 1 << 40)
assert send(b"file") == 0
chunks, _, lease, _ = ring.lease(10, 65536)
assert send(b"next") == 0

def child():
    global ring, chunks, lease
    for use in (ring.statistics, ring.discard, ring.disarm, lambda: ring.lease(1, 1), lambda: ring.detach(0)):
        try:
            use()
        except ValueError as error:
            assert "parent process" in str(error)
        else:
            raise AssertionError(use)
    lease.release()
    ring.close()
    del ring, chunks, lease
    gc.collect()

in_child(child)
assert bytes(chunks[0]) == b"data"
(chunk,), _, _, _ = ring.lease(10, 65536)
assert chunk.name == "next"
assert ring.detach(0)
""")


def test_child_that_exits_runs_none_of_the_parent_s_endings() -> None:
    output = run("""
source = RingSource(OPTIONS)
anyio.run(source.__aenter__)

child = os.fork()
if child == 0:
    sys.exit(5)
_, status = os.waitpid(child, 0)

assert os.waitstatus_to_exitcode(status) == 5
assert send(b"file") == 0
assert source.statistics().callbacks == 1
print("parent")
""")

    assert output == "parent\n"


def test_workers_of_a_fork_context_do_not_disturb() -> None:
    run("""
def work(index):
    refused = send(b"worker") != 0
    anyio.run(capture, b"own")
    return refused

async def main():
    async with RingSource(OPTIONS) as source:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, range(4)) == [True] * 4
        assert send(b"parent") == 0
        assert await receive_names(source) == ["parent"]

anyio.run(main)
""")
