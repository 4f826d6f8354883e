"""The list of a collector's processes, however many come, and whatever they say of themselves."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.to_thread import current_default_thread_limiter, run_sync
from tests.conftest import LIMIT_S, make_process

from dumpstream import CollectorError, DestinationError
from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import MANIFEST, read_manifest
from dumpstream.outside.process import CapturedProcess, introduced
from dumpstream.outside.roster import Roster
from dumpstream.outside.wire import VERSION, decode, encode, parse_hello
from dumpstream.stages.report import LossCount, Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

_PROCESSES = 2000


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def destination(out: Path) -> Iterator[Destination]:
    destination = Destination.open(out, of_processes=True)
    destination.begin_processes()
    yield destination
    destination.close()


@pytest.fixture
def roster(destination: Destination) -> Roster:
    return Roster(destination)


def long_hello(rank: int) -> bytes:
    """Return how a process with a command line of 32 KB introduces itself."""
    words = [("argv", f"--option-{number}=é{'x' * 100}") for number in range(290)]
    known = [("version", VERSION), ("parent", 1), ("env.RANK", rank)]
    return encode("hello", [*known, ("argv", "python"), *words])


async def test_thousands_of_processes_with_long_command_lines_are_listed_in_seconds(
    roster: Roster, out: Path
) -> None:
    async def come_and_go(rank: int) -> None:
        process = CapturedProcess(introduced(1000 + rank, parse_hello(decode(long_hello(rank)))))
        await roster.add(process)
        await roster.end(process, "exit code 0")

    with anyio.fail_after(LIMIT_S / 4):
        async with anyio.create_task_group() as tasks:
            for rank in range(_PROCESSES):
                tasks.start_soon(come_and_go, rank)

    processes = (await run_sync(read_manifest, out)).processes
    assert {process.rank for process in processes} == set(range(_PROCESSES))
    assert {process.ending for process in processes} == {"exit code 0"}
    assert {process.command[0] for process in processes} == {"python"}
    assert (out / MANIFEST).stat().st_size < 8 << 20


async def test_a_few_kibibytes_are_kept_of_a_process_that_has_ended(roster: Roster) -> None:
    async def come_and_go(rank: int) -> None:
        process = CapturedProcess(introduced(1000 + rank, parse_hello(decode(long_hello(rank)))))
        await roster.add(process)
        await roster.end(process, "exit code 0")

    await come_and_go(0)
    tracemalloc.start()
    for rank in range(1, 101):
        await come_and_go(rank)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(roster.processes) == 101
    assert kept / 100 < 12_000


async def test_processes_of_the_same_rank_have_directories_of_their_own(roster: Roster, out: Path) -> None:
    await run_sync((out / "rank-0.3").mkdir)  # not from this collector
    processes = [CapturedProcess(make_process(pid, rank=0)) for pid in range(4)]
    for process in processes:
        await roster.add(process)

    directories = [process.record.directory for process in processes]
    assert directories == ["rank-0", "rank-0.2", "rank-0.4", "rank-0.5"]


async def test_changes_that_come_while_the_manifest_is_written_share_the_next_write(
    roster: Roster, destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0
    write = destination._write

    def count_and_write() -> None:
        nonlocal writes
        writes += 1
        write()

    monkeypatch.setattr(destination, "_write", count_and_write)

    async with anyio.create_task_group() as tasks:
        for pid in range(100):
            tasks.start_soon(roster.add, CapturedProcess(make_process(pid)))

    assert 1 <= writes <= 3


async def test_a_process_that_cannot_be_listed_is_in_no_later_list(
    roster: Roster, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.archive.manifest.LARGEST_BYTES", 1000)
    with pytest.raises(DestinationError, match="more than 1000"):
        await roster.add(CapturedProcess(make_process(1, command=["x" * 2000])))

    await roster.add(CapturedProcess(make_process(2)))

    assert [process.pid for process in (await run_sync(read_manifest, out)).processes] == [2]
    assert [process.record.pid for process in roster.processes] == [2]
    assert roster.error is not None


async def _wait_in_thread(event: threading.Event) -> None:
    await run_sync(event.wait)


async def test_a_caller_that_is_cancelled_before_it_writes_takes_no_change_of_others_along(
    roster: Roster, out: Path
) -> None:
    limiter = current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 1
    release = threading.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_wait_in_thread, release)  # takes the only thread
            await wait_all_tasks_blocked()
            async with anyio.create_task_group() as cancelled:
                async with roster._writing:  # both wait for their turn
                    cancelled.start_soon(roster.add, CapturedProcess(make_process(1)))
                    await wait_all_tasks_blocked()
                    tasks.start_soon(roster.add, CapturedProcess(make_process(2)))
                    await wait_all_tasks_blocked()
                await wait_all_tasks_blocked()
                cancelled.cancel_scope.cancel()
            release.set()
    finally:
        release.set()
        limiter.total_tokens = before

    assert [process.pid for process in (await run_sync(read_manifest, out)).processes] == [2]


async def test_a_full_list_takes_no_further_process(roster: Roster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.outside.roster._MOST_PROCESSES", 1)
    roster.refuse_if_full()
    await roster.add(CapturedProcess(make_process(1)))

    with pytest.raises(CollectorError, match="list is full: it has 1 processes; start another collector"):
        roster.refuse_if_full()

    assert roster.error is None


async def refuse_many(roster: Roster, reasons: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for pid, reason in enumerate(reasons):
            tasks.start_soon(roster.refuse, CapturedProcess(make_process(pid)), reason)


async def test_after_the_first_few_refusals_for_a_reason_the_others_are_counted(
    roster: Roster, out: Path
) -> None:
    await refuse_many(roster, ["no ring"] * 1000 + ["no right"] * 3)

    problems = [process.problem for process in (await run_sync(read_manifest, out)).processes]
    assert problems[:15] == ["no ring"] * 15
    assert problems[15] == "no ring; more were refused for this reason: 984"
    assert problems[16:] == ["no right"] * 3
    assert len(roster.processes) == 19
    assert not roster.whole


async def test_refusals_for_ever_new_reasons_are_counted_together(roster: Roster, out: Path) -> None:
    await refuse_many(roster, [f"reason {number}" for number in range(1000)])

    problems = [process.problem for process in (await run_sync(read_manifest, out)).processes]
    assert len(problems) == 129
    assert problems[-1] == "reason 128; more were refused for further reasons: 871"


async def test_a_problem_that_a_process_words_is_bounded_in_the_list(roster: Roster, out: Path) -> None:
    process = CapturedProcess(make_process(1))
    await roster.add(process)
    process.note("it dumps by " + "\udcff" * 4096)
    await roster.end(process, "exit code 0")

    assert (out / MANIFEST).stat().st_size < 2000
    (record,) = json.loads((out / MANIFEST).read_text())["processes"]
    assert record["problem"].startswith("it dumps by")
    assert record["problem"].endswith("...")


async def test_the_figures_of_processes_that_have_ended_are_summed_once(roster: Roster) -> None:
    ended = [CapturedProcess(make_process(pid)) for pid in range(3)]
    for process in ended:
        process._report = Report(
            seconds=1, files=2, verdicts={"complete": 2}, losses={"late": LossCount(1, 5)}
        )
        await roster.add(process)
        roster.finish(process)
    running = CapturedProcess(make_process(9))
    await roster.add(running)
    running._report = Report(seconds=1, files=1, verdicts={"short": 1}, failure="it failed")

    report = roster.report(7.0)

    assert (report.seconds, report.files, report.failure) == (7.0, 7, "it failed")
    assert report.verdicts == {"complete": 6, "short": 1}
    assert report.losses == {"late": LossCount(3, 15)}
    assert list(roster._present) == [running]


async def test_a_write_that_fails_in_an_unforeseen_way_is_told_to_every_caller_of_it(
    roster: Roster, destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(destination, "_write", fail)
    told: list[str] = []

    async def come(rank: int) -> None:
        try:
            await roster.add(CapturedProcess(make_process(rank)))
        except CollectorError as exc:
            told.append(str(exc))

    async with anyio.create_task_group() as tasks:
        for rank in range(5):
            tasks.start_soon(come, rank)

    assert len(told) == 5
    assert all("cannot be written: out of memory; let" in text for text in told)
    assert roster.processes == []
