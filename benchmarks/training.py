"""Training: the job that bench_overhead.py measures, in a process of its own.

``python training.py KIND RESULT SETTINGS``: does what KIND says with the settings, a JSON object, and writes
its findings to the file RESULT. The caller pins the process to one core; the thread that computes moves to
the other.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from anyio.to_thread import run_sync

from compiled import load_compiled
from dumpstream import open_capture
from dumpstream.acl.library import Acl
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config
from dumpstream.simulation.workload import opened
from producer import CALLBACK, PAYLOAD_AT, ChunkHead, Chunks, Target, bare_copy, produce

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_MIB = 1 << 20
_RING_BYTES = 256 * _MIB
_QUEUE_BYTES = 64 * _MIB  #: how far the runtime lets the consumer fall behind before the device waits
_GAP_NS = 600_000
_TICK_NS = 5_000_000
_MEMORY = ("RssAnon", "RssFile", "RssShmem")

IGNORED, INSIDE, OWN, OUTSIDE, PYTHON, FILE = (
    "no consumer",
    "own_process=False",
    "open_capture",
    "outside",
    "Python callback",
    "file writing",
)
CALL = "call"

#: The zstd level at which one core stores more than is dumped.
LEVEL = -100


def run_training(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Run the steps with the consumer that *kind* names, and return what they took."""
    acl = Acl([SimulatedRuntime().library])
    load_compiled("training.c")
    began = perf_counter_ns()
    acl.call("aclInit", None)
    try:
        return anyio.run(_train_with, kind, acl, began, settings)
    finally:
        acl.call("aclFinalize")


async def _train_with(kind: str, acl: Acl, began: int, settings: dict[str, Any]) -> dict[str, Any]:
    async with _consumer(kind, acl, Path(settings["directory"])), anyio.create_task_group() as tasks:
        late_ns: list[int] = []
        tasks.start_soon(_tick, late_ns)
        found = await run_sync(_train, acl, began, settings)
        tasks.cancel_scope.cancel()
    return found | {"late_ns": late_ns}


async def _tick(late_ns: list[int]) -> None:
    """Note how much later than it asked for the event loop of the service wakes a task."""
    while True:
        due = perf_counter_ns() + _TICK_NS
        await anyio.sleep(_TICK_NS / 1e9)
        late_ns.append(perf_counter_ns() - due)


@asynccontextmanager
async def _consumer(kind: str, acl: Acl, directory: Path) -> AsyncIterator[None]:
    """Take the chunks; the collector takes those from outside, and the runtime writes files itself."""
    if kind in {INSIDE, OWN}:
        async with open_capture(
            directory / "capture",
            acl_library=acl.paths[0],
            buffer_bytes=_RING_BYTES,
            level=LEVEL,
            own_process=False if kind == INSIDE else None,
        ):
            yield
        return
    callbacks: dict[str, Any] = {
        IGNORED: load_compiled("training.c").bench_ignore,
        PYTHON: CALLBACK(_FileWriter(directory).on_chunk),
    }
    if kind in callbacks:
        acl.call("acldumpRegCallback", ctypes.cast(callbacks[kind], ctypes.c_void_p), ctypes.c_int32(0))
    yield


class _FileWriter:
    """Gathers a file and writes it at its end, in the callback, as Python programs do."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pieces: dict[bytes, list[bytes]] = {}
        self._files = 0

    def on_chunk(self, address: int, _length: int) -> int:
        """Take a chunk as the runtime gives it."""
        head = ChunkHead.from_address(address)
        data = ctypes.string_at(address + PAYLOAD_AT, head.length)
        self._pieces.setdefault(head.file_name, []).append(data)
        if head.is_last:
            self._files += 1
            path = self._directory / str(self._files)
            path.write_bytes(b"".join(self._pieces.pop(head.file_name)))
        return 0


def _train(acl: Acl, began: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Do what a framework does between aclInit and aclFinalize."""
    workload = Workload(
        models=1,
        ops=settings["files"],
        inputs=0,
        tensor_bytes=str(settings["file_bytes"]),
        dtypes="float32",
        device_threads=1,
        rate=settings["rate"],
        queue_bytes=_QUEUE_BYTES,
    )
    runtime = SimulatedRuntime(workload)
    config = Path(settings["directory"], "acl.json")
    config.write_text(dump_config(settings["directory"]), encoding="utf-8")
    with opened(workload) as handle:
        acl.call("aclrtSetDevice", 0)
        acl.init_dump()
        acl.set_dump(config)
        runtime.library.dssim_load(handle)
        with _device(runtime) as device:
            os.sched_setaffinity(0, {settings["core"]})
            device.begin()
            while not (runtime.counters.delivered or runtime.counters.disk):
                pass
            first = perf_counter_ns() - began
            device.wait()
            step_ns = [device.step(settings) for _ in range(settings["warm_up"] + settings["steps"])]
        acl.call("aclrtSynchronizeDevice")
        memory = _memory()
        acl.finalize_dump()
    return {
        "step_ns": step_ns[settings["warm_up"] :],
        "first_chunk_ns": first,
        "memory": memory,
        "counters": runtime.counters._asdict(),
    }


class _Device:
    """The device's side of a step, run by a thread that has the affinity of the one that made this."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._library = load_compiled("training.c")
        self._state = ctypes.create_string_buffer(self._library.bench_device_bytes())
        self._library.bench_kernel.argtypes = [ctypes.c_uint64]
        run = ctypes.cast(runtime.library.dssim_run, ctypes.c_void_p)
        if error := self._library.bench_device_start(self._state, run):
            raise OSError(error, os.strerror(error))

    def begin(self) -> None:
        """Let it run a step."""
        self._library.bench_device_begin(self._state)

    def wait(self) -> None:
        """Wait for the step that began last."""
        self._library.bench_device_wait(self._state)

    def step(self, settings: dict[str, Any]) -> int:
        """Compute while the device runs a step, wait for it, and return the nanoseconds."""
        start = perf_counter_ns()
        self.begin()
        for _ in range(settings["kernels"]):
            self._library.bench_kernel(settings["rounds"])
        self.wait()
        return perf_counter_ns() - start

    def stop(self) -> None:
        """End the thread."""
        self._library.bench_device_stop(self._state)


@contextmanager
def _device(runtime: SimulatedRuntime) -> Iterator[_Device]:
    device = _Device(runtime)
    try:
        yield device
    finally:
        device.stop()


def _memory() -> dict[str, int]:
    """Return the resident memory of this process, by kind, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {key: int(fields[key].split()[0]) << 10 for key in _MEMORY}


def time_calls(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the times of the callback that the agent registered, and of a bare memcpy."""
    library = load_compiled("acl.c")
    library.bench_registered.restype = ctypes.c_void_p
    Acl([library]).call("aclInit", None)
    registered = library.bench_registered()
    if not registered:
        raise RuntimeError("no callback is registered; the agent is not preloaded")
    caller = ctypes.cast(load_compiled("producer.c").bench_call, ctypes.c_void_p).value or 0
    targets = {"callback": Target(caller, registered, library), "memcpy": bare_copy(_RING_BYTES)}
    chunks = Chunks([np.random.default_rng(0).bytes(_MIB)])
    os.sched_setaffinity(0, {settings["core"]})
    times: dict[str, list[int]] = {kind: [] for kind in targets}
    for _ in range(settings["call_rounds"]):
        for kind, target in targets.items():
            times[kind] += produce(target, chunks, settings["calls"], gap_ns=_GAP_NS, timed=True).call_ns
    Acl([library]).call("aclFinalize")
    calls = times["callback"]
    return {**times, "first lap": calls[: settings["calls"]], "callback": calls[settings["calls"] :]}


def _run(kind: str, result: str, settings: str) -> None:
    values = json.loads(settings)
    found = time_calls(values) if kind == CALL else run_training(kind, values)
    Path(result).write_text(json.dumps(found), encoding="ascii")


if __name__ == "__main__":
    _run(*sys.argv[1:])
