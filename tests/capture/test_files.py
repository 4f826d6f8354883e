"""Files as they finish: what a consumer of a capture gets, and when it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S, DumpBuilder

from dumpstream import FinishedFile, OnSlow, PartError, Verdict
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.capture.conftest import Rig

    from dumpstream import Capture, SinkError
    from dumpstream.sinks import Stored, WholeFile

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(either_rig: Rig) -> Rig:
    return either_rig


_LARGE = bytes(range(256)) * (12 << 10)  # 3 MiB: written piece by piece


class Consumer:
    """A task that takes every file, and what it saw."""

    def __init__(self) -> None:
        self.files: list[FinishedFile] = []
        self.data: dict[str, bytes] = {}
        self.error: Exception | None = None

    async def run(self, capture: Capture, **options: Any) -> None:
        try:
            async for file in capture.files(**options):
                self.files.append(file)
                self.data[file.name] = await file.read()
        except Exception as exc:  # noqa: BLE001 - kept for the test
            self.error = exc

    @property
    def verdicts(self) -> dict[str, Verdict]:
        return {file.name: file.verdict for file in self.files}


async def test_every_file_comes_with_its_verdict_and_its_bytes(rig: Rig) -> None:
    consumer = Consumer()
    async with asyncio.TaskGroup() as tasks, rig.pushed() as capture:
        tasks.create_task(consumer.run(capture))
        await asyncio.sleep(0)  # it has called files()
        rig.push("one chunk", b"1", last=True)
        rig.push("two chunks", b"1")
        rig.push("two chunks", b"2", last=True)
        rig.push("large", _LARGE)
        rig.push("large", b"end", last=True)
        rig.push("empty", b"", last=True)
        rig.push("never closed", b"1")

    assert consumer.error is None
    assert consumer.data == {
        "one chunk": b"1",
        "two chunks": b"12",
        "large": _LARGE + b"end",
        "empty": b"",
        "never closed": b"1",
    }
    assert consumer.verdicts["never closed"] is Verdict.NEVER_CLOSED
    assert {file.name: (file.size, file.chunks) for file in consumer.files}["large"] == (len(_LARGE) + 3, 2)
    rows = await run_sync(rig.rows)
    assert {file.name: list(file.parts) for file in consumer.files} == {
        name: list(row.stored) for name, (row,) in rows.items()
    }


async def test_a_whole_workload_comes_to_every_consumer(rig: Rig) -> None:
    first, second = Consumer(), Consumer()
    with SimulatedRuntime(Workload(steps=3)) as runtime:
        async with asyncio.TaskGroup() as tasks, rig.simulated() as capture:
            tasks.create_task(first.run(capture))
            tasks.create_task(second.run(capture, max_files=1, max_bytes=1 << 18))
            await asyncio.sleep(0)
            await run_sync(runtime.run)

    stored = await run_sync(rig.read)
    assert first.error is second.error is None
    assert first.data == second.data == {name: read.data for name, read in stored.items()}
    assert capture.report.skipped_files == 0


async def test_files_come_in_the_order_in_which_they_ended(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files()
        rig.push("two chunks", b"1")
        for number in range(3):
            rig.push(f"before {number}", b"1", last=True)
        rig.push("two chunks", b"2", last=True)
        rig.push("after", b"1", last=True)
        rig.push("large", _LARGE)
        rig.push("large", b"end", last=True)
        rig.push("last", b"1", last=True)

    ended = ["before 0", "before 1", "before 2", "two chunks", "after", "large", "last"]
    assert [file.name async for file in files] == ended


class OvertakenSink(MemorySink):
    """Has stored the first files it gets after the second ones."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._second = anyio.Event()

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        self.calls += 1
        if self.calls == 1:
            await self._second.wait()
        self._second.set()
        return await super().put(files)


async def test_a_batch_that_is_stored_late_does_not_change_the_order_of_files(rig: Rig) -> None:
    sink = OvertakenSink()
    async with rig.pushed(sinks=[sink]) as capture:
        files = capture.files()
        rig.push("first", b"1", last=True)
        await rig.until(lambda: sink.calls == 1)
        rig.push("second", b"2", last=True)

    assert list(sink.files) == ["second", "first"]
    assert [file.name async for file in files] == ["first", "second"]


async def test_bytes_behind_a_gap_are_in_the_pieces_with_their_place(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files()
        rig.push("gap", b"0123", offset=0)
        rig.push("gap", b"89", offset=8, last=True)
    file = await anext(files)

    assert (file.verdict, file.size, file.missing) == (Verdict.GAP, 6, ((4, 8),))
    assert await file.read() == b"0123"
    assert [piece async for piece in file.pieces()] == [(0, b"0123"), (8, b"89")]


async def test_a_consumer_sees_the_files_that_finish_after_it_called(rig: Rig) -> None:
    async with rig.pushed() as capture:
        early = capture.files()
        rig.push("before", b"1", last=True)
        assert (await anext(early)).name == "before"

        late = capture.files()
        rig.push("after", b"2", last=True)
        assert (await anext(late)).name == "after"

    assert [file.name async for file in early] == ["after"]
    assert [file.name async for file in late] == []


async def test_the_bytes_of_earlier_files_come_from_where_they_are_stored(rig: Rig) -> None:
    kept = []
    async with rig.pushed() as capture:
        files = capture.files()
        for name in ("first", "second"):
            rig.push(name, name.encode(), last=True)
    async for file in files:
        kept.append(file)  # noqa: PERF401 - each is released when the next is asked for

    assert [await file.read() for file in kept] == [b"first", b"second"]


async def test_a_file_in_a_pack_that_still_grows_is_read_from_it(rig: Rig) -> None:
    async with rig.pushed(pack=True) as capture:
        files = capture.files(max_bytes=6)
        for name in ("first", "second"):
            rig.push(name, name.encode(), last=True)
        first = await anext(files)
        at_once = await first.read()
        await anext(files)
        later = await first.read()

    assert [part.start is not None for part in first.parts] == [True]
    assert at_once == later == b"first"


async def test_files_that_are_not_to_be_stored_come_to_consumers_all_the_same(rig: Rig) -> None:
    async with rig.pushed(only=["*stored"]) as capture:
        files = capture.files()
        for name in ("stored", "other"):
            rig.push(name, name.encode(), last=True)
    found = {file.name: (await file.read(), len(file.parts)) async for file in files}

    assert found == {"stored": (b"stored", 1), "other": (b"other", 0)}


async def test_bytes_that_no_sink_gives_back_are_gone_with_the_next_file(rig: Rig) -> None:
    async with rig.pushed(sinks=[MemorySink()]) as capture:
        files = capture.files()
        for name in ("first", "second"):
            rig.push(name, name.encode(), last=True)
    first = await anext(files)
    data = await first.read()
    second = await anext(files)

    assert (data, await second.read()) == (b"first", b"second")
    with pytest.raises(PartError, match="'first' is not in memory, and no sink of the capture can give it"):
        await first.read()


async def test_a_file_larger_than_the_bound_is_read_in_pieces(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files(max_bytes=1000)
        rig.push("large", _LARGE, last=True)
    file = await anext(files)

    with pytest.raises(ValueError, match=r"'large' has 3145728 bytes, more than the 1000 .* with pieces\(\)"):
        await file.read()
    assert b"".join([piece.data async for piece in file.pieces()]) == _LARGE


async def test_a_damaged_file_is_an_error_for_its_consumer_alone(rig: Rig) -> None:
    async with rig.pushed(pack=False) as capture:
        files = capture.files(max_bytes=10)
        rig.push("damaged", b"x" * 100, last=True)
        file = await anext(files)
        (part,) = file.parts
        assert part.path is not None
        await run_sync((rig.path / part.path).write_bytes, b"not it")

        with pytest.raises(PartError, match="bytes instead of"):
            async for _ in file.pieces():
                pass

    assert capture.report.whole


async def test_files_come_with_the_statistics_of_their_tensors(rig: Rig, dump: DumpBuilder) -> None:
    data = dump.output(np.array([1, np.nan, 3], dtype="float32")).build()
    async with rig.pushed(sinks=["zstd:", "stats:"]) as capture:
        files = capture.files()
        rig.push("MatMul.small.1.2.3", data, last=True)
        rig.push("not a dump", b"1", last=True)
    found = {file.name: file.statistics async for file in files}

    (row,) = found["MatMul.small.1.2.3"] or ()
    assert (row.op_type, row.io, row.nan, row.finite_max) == ("MatMul", "output", 1, 3.0)
    assert found["not a dump"] is not None


async def test_without_a_statistics_sink_there_are_no_statistics(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files()
        rig.push("file", b"1", last=True)

    assert (await anext(files)).statistics is None


async def test_statistics_of_a_large_file_come_too(rig: Rig, dump: DumpBuilder) -> None:
    data = dump.output(np.ones(1 << 19, dtype="float32")).build()
    async with rig.pushed(sinks=["zstd:", "stats:?format=csv"]) as capture:
        files = capture.files()
        rig.push("MatMul.large.1.2.3", data[:100])
        rig.push("MatMul.large.1.2.3", data[100:], last=True)
    (row,) = (await anext(files)).statistics or ()

    assert (row.count, row.mean) == (1 << 19, 1.0)


async def test_a_slow_consumer_holds_the_capture_up_and_misses_nothing(rig: Rig) -> None:
    names = [str(number) for number in range(50)]
    async with rig.pushed() as capture:
        files = capture.files(max_files=1, timeout=None)
        for name in names:
            rig.push(name, b"1", last=True)
            rig.push(f"also {name}", b"1")
            rig.push(f"also {name}", b"2", last=True)
        seen = [(await anext(files)).name for _ in range(100)]

    assert sorted(seen) == sorted([*names, *(f"also {name}" for name in names)])
    assert capture.report.skipped_files == 0


async def test_a_consumer_that_is_to_be_skipped_never_holds_the_capture_up(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files(max_files=2, on_slow="skip")
        for number in range(50):
            rig.push(str(number), b"1", last=True)
        report = capture.report
        async with asyncio.timeout(LIMIT_S):
            while report.files < 50:
                report = await capture.changed(report)

    assert [file.name async for file in files] == ["0", "1"]
    assert files.skipped == capture.report.skipped_files == 48
    assert capture.report.as_dict()["skipped_files"] == 48
    assert capture.report.whole


async def test_what_waits_in_memory_is_bounded_by_its_bytes(rig: Rig) -> None:
    async with rig.pushed(sinks=[MemorySink()]) as capture:
        files = capture.files(max_bytes=1000, on_slow=OnSlow.SKIP)
        for number in range(20):
            rig.push(str(number), bytes(400), last=True)
        report = capture.report
        while report.files < 20:
            report = await capture.changed(report)

    assert [file.name async for file in files] == ["0", "1"]


async def test_the_capture_waits_no_longer_than_the_time_limit(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files(max_files=1, timeout=0.05)
        for number in range(20):
            rig.push(str(number), b"1", last=True)
        report = capture.report
        async with asyncio.timeout(LIMIT_S):
            while report.skipped_files < 19:
                report = await capture.changed(report)
        assert (await anext(files)).name == "0"
        rig.push("later", b"1", last=True)
        assert (await anext(files)).name == "later"

    assert files.skipped == 19


async def test_several_tasks_may_share_the_files(rig: Rig) -> None:
    seen: list[str] = []

    async def work() -> None:
        async for file in files:
            seen.append((await file.read()).decode())  # noqa: PERF401 - several tasks do this

    async with asyncio.TaskGroup() as tasks, rig.pushed() as capture:
        files = capture.files(max_files=2)
        for _ in range(3):
            tasks.create_task(work())
        for number in range(100):
            rig.push(str(number), str(number).encode(), last=True)

    assert sorted(seen, key=int) == [str(number) for number in range(100)]


@pytest.mark.parametrize(
    "options", [{"max_files": 0}, {"max_bytes": -1}, {"timeout": -1.0}, {"on_slow": "never"}]
)
async def test_arguments_out_of_range_are_refused(rig: Rig, options: dict[str, Any]) -> None:
    async with rig.pushed() as capture:
        with pytest.raises(ValueError, match=r"must be|not a valid"):
            capture.files(**options)


async def test_progress_can_be_awaited(rig: Rig) -> None:
    async with rig.pushed() as capture:
        waiting = asyncio.create_task(capture.changed())
        await anyio.wait_all_tasks_blocked()
        assert not waiting.done()

        rig.push("file", b"1", last=True)
        report = await waiting
        while not report.files:
            report = await capture.changed(report)
        ended = capture.ended

    assert (report.files, ended, capture.ended) == (1, False, True)
    assert (await capture.changed()).files == 1
    assert (await capture.changed(capture.report)).files == 1


async def test_what_has_changed_since_a_report_is_not_missed(rig: Rig) -> None:
    async with rig.pushed() as capture:
        before = capture.report
        files = capture.files()
        rig.push("file", b"1", last=True)
        await anext(files)

        async with asyncio.timeout(LIMIT_S):
            assert (await capture.changed(before)).files == 1
