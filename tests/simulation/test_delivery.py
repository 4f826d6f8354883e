"""How chunks reach the callback, or do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from dumpstream.simulation import SimulatedRuntime, Workload, dump_config

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Dump, Seen

SMALL = Workload(models=1, ops=5, tensor_bytes="100-2000")


def expected(workload: Workload, path: Path) -> dict[str, bytes]:
    return {file.name: file.data for file in workload.expected_files(path)}


def on_disk(path: Path, names: dict[str, bytes]) -> dict[str, bytes]:
    found = {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return {name: found.pop(os.path.normpath(name)) for name in names} | found


class Gate:
    """Holds the callback from its *first* call on until it is opened."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.calls = 0
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _: Seen) -> int:
        self.calls += 1
        if self.calls >= self.first:
            self.reached.set()
            self.opened.wait()
        return 0


@pytest.mark.parametrize(
    "workload",
    [
        Workload(),
        Workload(seed=7, slice_bytes=1000, device_threads=3, steps=2),
        Workload(seed=8, shape="3x5x7", inputs=0, outputs=2, queue_bytes=1),
        Workload.parse("demo,tensor_bytes=4096-8192"),
    ],
    ids=["default", "sliced", "shaped", "demo"],
)
def test_callback_gets_the_expected_files(dump: Dump, workload: Workload) -> None:
    files = list(workload.expected_files(dump.path))

    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        sent = runtime.run()
        dump.finalize()

    text = {file.name for file in files if file.fault == "stats_text"}
    assert sent == len(files)
    assert {file.name: file.data for file in files if file.name not in text} == {
        name: data for name, data in dump.recorder.files().items() if name not in text
    }
    assert {file.name: file.chunks for file in files} == Counter(chunk.name for chunk in dump.recorder.chunks)


def test_chunks_lie_in_memory_as_canns_do(dump: Dump) -> None:
    with SimulatedRuntime(Workload(slice_bytes=4096)) as runtime:
        dump.begin()
        runtime.run()
        dump.finalize()

    assert {chunk.address % 16 for chunk in dump.recorder.chunks} == {12}
    assert all(chunk.length == 4120 + len(chunk.data) for chunk in dump.recorder.chunks)
    assert {(chunk.offset, chunk.flag) for chunk in dump.recorder.chunks} == {(-1, 0)}


def test_one_thread_delivers_all_chunks_and_each_file_in_order(dump: Dump) -> None:
    workload = Workload(slice_bytes=1024, device_threads=3)

    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        runtime.run()
        dump.finalize()

    assert len({chunk.thread for chunk in dump.recorder.chunks} - {threading.get_native_id()}) == 1
    for name in {chunk.name for chunk in dump.recorder.chunks}:
        marks = [chunk.last for chunk in dump.recorder.chunks_of(name)]
        assert marks == [0] * (len(marks) - 1) + [1]


def test_second_registration_succeeds_and_is_ignored(dump: Dump) -> None:
    second = type(dump.recorder)(dump.library)

    with SimulatedRuntime(SMALL) as runtime:
        dump.begin()
        code = second.register()
        runtime.run()
        dump.finalize()

    assert code == 0
    assert second.chunks == []
    assert dump.recorder.files() == expected(SMALL, dump.path)
    assert runtime.counters.ignored == 1


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (None, 0),
        ({}, 0),
        ({"dump_list": []}, 0),
        ({"dump_list": [], "dump_op_switch": "off"}, 0),
        ({"dump_list": [{"model_name": "transformer_0"}], "dump_level": "op"}, 5),
        ({"dump_op_switch": "on"}, 0),
    ],
)
def test_nothing_is_dumped_unless_configured(
    dump: Dump, settings: dict[str, object] | None, files: int
) -> None:
    dump.recorder.register()

    with SimulatedRuntime(SMALL) as runtime:
        dump.library.aclmdlInitDump()
        if settings is not None:
            dump.config.write_text(json.dumps({"dump": {"dump_path": str(dump.path), **settings}}))
            dump.library.aclmdlSetDump(os.fsencode(dump.config))
        sent = runtime.run()
        dump.finalize()

    assert sent == files
    assert len(dump.recorder.files()) == files


def test_configuration_through_init_suffices(dump: Dump) -> None:
    dump.recorder.register()

    with SimulatedRuntime(SMALL, config=dump.config) as runtime:
        runtime.run()

    assert dump.recorder.files() == expected(SMALL, dump.path)


def test_synchronize_leaves_the_queue_and_finalize_drains_it(dump: Dump) -> None:
    dump.recorder.answer = gate = Gate()

    with SimulatedRuntime(SMALL) as runtime:
        dump.begin()
        runtime.start()
        runtime.synchronize()
        queued = runtime.counters
        gate.opened.set()
        dump.finalize()
        drained = runtime.counters

    assert (queued.files, queued.delivered) == (5, 0)
    assert (drained.delivered, drained.lost) == (5, 0)
    assert dump.recorder.files() == expected(SMALL, dump.path)


def test_finalize_of_8_5_returns_during_the_last_callback(dump: Dump) -> None:
    dump.recorder.answer = gate = Gate(first=5)

    with SimulatedRuntime(Workload(models=1, ops=5, tensor_bytes="100", cann="8.5")) as runtime:
        dump.begin()
        runtime.run()
        dump.finalize()
        counted = runtime.counters
        gate.reached.wait()
        gate.opened.set()
        restarted = dump.library.aclmdlInitDump()
        while runtime.counters.delivered < 5:  # or the next test would count it
            os.sched_yield()

    assert counted.delivered == 4
    assert restarted == 0


def test_unregistering_sends_what_is_queued_to_disk(dump: Dump) -> None:
    dump.recorder.answer = gate = Gate()
    workload = Workload(
        models=1, ops=5, tensor_bytes="100-2000", device_threads=1, slice_bytes=600, offsets="3"
    )
    files = expected(workload, dump.path)

    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        runtime.run()
        gate.reached.wait()
        dump.library.acldumpUnregCallback()
        gate.opened.set()
        dump.finalize()

    (taken,) = dump.recorder.chunks
    files[taken.name] = files[taken.name][len(taken.data) :]
    assert on_disk(dump.path, files) == files
    assert runtime.counters.delivered == 1
    assert runtime.counters.disk == sum(file.chunks for file in workload.expected_files(dump.path)) - 1


def test_refused_chunks_are_counted_and_gone(dump: Dump) -> None:
    dump.recorder.answer = lambda _: 1

    with SimulatedRuntime(SMALL) as runtime:
        dump.begin()
        runtime.run()
        dump.finalize()

    assert (runtime.counters.refused, runtime.counters.delivered, runtime.counters.disk) == (5, 0, 0)
    assert list(dump.path.iterdir()) == []


def test_full_queue_makes_the_device_wait(dump: Dump) -> None:
    ahead: list[int] = []

    def measure(_: Seen) -> int:
        ahead.append(runtime.counters.files - len(ahead))
        return 0

    with SimulatedRuntime(Workload(queue_bytes=1, device_threads=2)) as runtime:
        dump.recorder.answer = measure
        dump.begin()
        runtime.run()
        dump.finalize()

    assert len(ahead) == 16
    assert max(ahead) <= 1


def test_finalize_during_a_run_loses_what_the_device_holds(dump: Dump) -> None:
    dump.recorder.answer = gate = Gate()

    with SimulatedRuntime(Workload(queue_bytes=1)) as runtime:
        dump.begin()
        runtime.start()
        gate.reached.wait()
        finalizing = threading.Thread(target=dump.finalize)
        finalizing.start()
        runtime.synchronize()
        gate.opened.set()
        finalizing.join()

    assert runtime.counters.delivered == 1
    assert runtime.counters.lost == 2


def test_rate_paces_the_device(dump: Dump) -> None:
    workload = Workload(models=1, ops=4, inputs=0, shape="25000", dtypes="float32", rate=2_000_000)

    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        began = time.monotonic()
        runtime.run()
        took = time.monotonic() - began
        dump.finalize()

    assert took >= 0.2


def test_stop_ends_a_run_after_whole_files(dump: Dump) -> None:
    workload = Workload(slice_bytes=512, rate=1, steps=1000)

    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        running = threading.Thread(target=runtime.run)
        running.start()
        runtime.stop()
        running.join()
        afterwards = runtime.run()
        dump.finalize()

    files = {file.name: file.data for file in workload.expected_files(dump.path, step=0)}
    assert afterwards == 0
    assert len(dump.recorder.files()) <= 2
    assert dump.recorder.files().items() <= files.items()


def test_runtimes_may_follow_one_another_but_not_meet(dump: Dump) -> None:
    for _ in range(2):
        with SimulatedRuntime(SMALL) as runtime:
            dump.begin()
            runtime.run()
            dump.finalize()
            with pytest.raises(RuntimeError, match="in use"):
                SimulatedRuntime().__enter__()

    doubled = {name: data * 2 for name, data in expected(SMALL, dump.path).items()}
    assert dump.recorder.files() == doubled


def run_script(script: str, path: Path) -> None:
    config = path / "acl.json"
    config.write_text(dump_config(path))
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(path), str(config)], check=True)
    config.unlink()


BEGIN = """
import os, sys
from dumpstream.simulation import SimulatedRuntime, Workload
runtime = SimulatedRuntime(Workload(seed=3, models=1, ops=5, device_threads=1))
runtime.__enter__()
assert runtime.library.aclmdlInitDump() == 0
assert runtime.library.aclmdlSetDump(os.fsencode(sys.argv[2])) == 0
"""


def test_process_exit_delivers_what_is_queued(tmp_path: Path) -> None:
    files = expected(Workload(seed=3, models=1, ops=5), tmp_path)

    run_script(BEGIN + "runtime.run()", tmp_path)

    assert on_disk(tmp_path, files) == files


def test_forked_child_inherits_neither_queue_nor_threads(tmp_path: Path) -> None:
    files = expected(Workload(seed=3, models=1, ops=5), tmp_path)
    fork = """
import ctypes, threading
held, go = threading.Event(), threading.Event()
@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
def hold(chunk, length):
    held.set()
    go.wait()
    return 1
assert runtime.library.acldumpRegCallback(hold, 0) == 0
runtime.run()
held.wait()
child = os.fork()
if child == 0:
    runtime.library.acldumpUnregCallback()
    before = runtime.counters
    assert runtime.run() == 0
    assert runtime.library.aclmdlInitDump() == 0
    assert runtime.library.aclmdlFinalizeDump() == 0
    assert runtime.counters == before, runtime.counters
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert os.listdir(sys.argv[1]) == ["acl.json"]
runtime.library.acldumpUnregCallback()
go.set()
assert runtime.library.aclmdlFinalizeDump() == 0
assert runtime.counters.disk == 4, runtime.counters
"""

    run_script(BEGIN + fork, tmp_path)

    del files[next(iter(files))]
    assert on_disk(tmp_path, files) == files
