"""Consumers of a capture that a companion stores: chosen by default, killed, failing, and slow."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync
from tests.capture.test_companion import change_companion, run_program, until_over
from tests.capture.test_own_process import companions
from tests.conftest import LIMIT_S

from dumpstream import Chunk, ChunkSource, CompanionError, PartError, SinkError, open_capture
from dumpstream.sinks.memory import MemorySink
from dumpstream.sinks.null import NullSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from tests.capture.conftest import Rig

    from dumpstream import Capture

pytestmark = pytest.mark.anyio

#: More than a message has, so the program reads it from where it is stored.
_LARGE = os.urandom(2 << 20)


@pytest.fixture(autouse=True)
async def _time_limit() -> AsyncIterator[None]:
    with anyio.fail_after(LIMIT_S):
        yield


def opened(rig: Rig, **options: Any) -> AbstractAsyncContextManager[Capture]:
    """Capture what the test pushes, as the options and nothing else decide."""
    options = {"buffer_bytes": 8 << 20} | options
    return open_capture(rig.path, acl_library=rig.library, **options)


@pytest.mark.parametrize("options", [{}, {"sinks": ["zstd:", "stats:"]}, {"pack": True}, {"only": ["*"]}])
async def test_a_companion_stores_a_capture_unless_something_needs_this_process(
    rig: Rig, options: dict[str, Any]
) -> None:
    async with opened(rig, **options) as capture:
        stored_by = await run_sync(companions)

    assert len(stored_by) == 1
    assert capture.report.own_process
    (end,) = await run_sync(rig.ends)
    assert capture.report.as_dict()["own_process"]
    assert end.outcome == "finished"


@pytest.mark.parametrize(
    ("to", "options"),
    [
        ("capture", {"own_process": False}),
        ("capture", {"sinks": [NullSink()]}),
        ("capture", {"sinks": ["memory:"]}),
        ("capture", {"source": True}),
        (None, {}),
    ],
    ids=["asked", "object", "other package", "source", "nowhere"],
)
async def test_what_needs_this_process_stays_in_it(rig: Rig, to: str | None, options: dict[str, Any]) -> None:
    if options.pop("source", False):
        options["source"] = ChunkSource([Chunk("file", b"1", is_last=True)])
    else:
        options |= {"acl_library": rig.library, "buffer_bytes": 1 << 20}
    async with open_capture(None if to is None else rig.path, **options) as capture:
        assert await run_sync(companions) == []

    assert not capture.report.own_process


@pytest.mark.parametrize("name", ["", "/usr/sbin/embedding"])
async def test_a_program_that_is_no_interpreter_stores_by_itself(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "executable", name)
    async with opened(rig) as capture:
        rig.push("file", b"1", last=True)

    assert not capture.report.own_process
    assert capture.report.files == 1


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM], ids=["an old kernel", "a container"])
async def test_where_processes_cannot_be_watched_the_program_stores_and_starts_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    async with opened(rig) as capture:
        assert await run_sync(companions) == []
        rig.push("file", b"1", last=True)

    assert not capture.report.own_process
    assert capture.report.files == 1
    assert not caplog.records
    with pytest.raises(ValueError, match="cannot be watched here"):
        async with opened(rig, own_process=True, force=True):
            pass


@pytest.mark.parametrize("missing", [True, False], ids=["no such program", "a program that ends at once"])
async def test_without_a_companion_that_starts_the_capture_stays_here_and_says_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, missing: bool
) -> None:
    path = rig.path.with_name("python")
    if not missing:
        await run_sync(path.symlink_to, "/bin/false")
    monkeypatch.setattr(sys, "executable", str(path))
    async with opened(rig) as capture:
        rig.push("file", b"1", last=True)

    assert not capture.report.own_process
    assert capture.report.files == 1
    assert "the capture is stored in this process" in caplog.text
    with pytest.raises(CompanionError, match="cannot be started"):
        async with opened(rig, own_process=True, force=True):
            pass


async def test_each_consumer_gets_the_first_file_after_its_call(rig: Rig) -> None:
    """The call returns at once, and the companion hears of it before it takes the next chunk."""
    async with opened(rig) as capture:
        assert capture.report.own_process
        for number in range(100):
            files = capture.files()
            rig.push(str(number), b"1", last=True)
            assert (await anext(files)).name == str(number)
            await files.aclose()

    assert capture.report.files == 100


async def test_many_small_files_come_once_each_with_their_bytes(rig: Rig) -> None:
    names = [str(number) for number in range(3000)]
    async with opened(rig) as capture:
        files = capture.files(max_files=8, timeout=None)
        await run_sync(lambda: [rig.push(name, name.encode(), last=True) for name in names])
        seen = [(file.name, await file.read()) async for _, file in _first(files, len(names))]

    assert seen == [(name, name.encode()) for name in names]
    assert capture.report.skipped_files == 0


async def _first(files: Any, count: int) -> Any:
    for number in range(count):
        yield number, await anext(files)


async def test_a_large_file_is_read_from_where_it_is_stored_and_a_small_one_is_sent(rig: Rig) -> None:
    async with opened(rig, pack=False) as capture:
        files = capture.files()
        rig.push("large", _LARGE, last=True)
        large = await anext(files)
        assert await large.read() == _LARGE
        (part,) = large.parts
        await run_sync((rig.path / (part.path or "")).unlink)
        with pytest.raises(PartError):
            await large.read()

        rig.push("small", b"1", last=True)
        small = await anext(files)
        (part,) = small.parts
        await run_sync((rig.path / (part.path or "")).unlink)
        assert await small.read() == b"1"


async def test_a_large_file_that_is_stored_nowhere_is_sent(rig: Rig) -> None:
    async with opened(rig, sinks=["null:"], buffer_bytes=32 << 20) as capture:
        assert capture.report.own_process
        files = capture.files()
        rig.push("large", _LARGE, last=True)
        large = await anext(files)
        assert await large.read() == _LARGE
        rig.push("next", b"1", last=True)
        await anext(files)
        with pytest.raises(PartError, match="no sink of the capture can give it back"):
            await large.read()


async def test_what_consumers_missed_is_in_the_journal(rig: Rig) -> None:
    async with opened(rig) as capture:
        files = capture.files(max_files=2, on_slow="skip")
        for number in range(20):
            rig.push(str(number), b"1", last=True)

    (end,) = await run_sync(rig.ends)
    assert [file.name async for file in files] == ["0", "1"]
    assert end.report["skipped_files"] == capture.report.skipped_files == files.skipped == 18


async def test_a_companion_that_is_killed_ends_its_consumers_with_the_cause(rig: Rig) -> None:
    async with rig.raising(CompanionError, "killed by SIGKILL", opened(rig)) as capture:
        files = capture.files()
        rig.push("before", b"1", last=True)
        assert (await anext(files)).name == "before"
        waiting = asyncio.ensure_future(anext(files))
        (companion,) = await run_sync(companions)
        os.kill(companion, signal.SIGKILL)
        with pytest.raises(CompanionError, match="killed by SIGKILL"):
            await waiting  # while the block still runs

        assert capture.ended


async def test_a_consumer_that_takes_nothing_does_not_keep_a_killed_companion(rig: Rig) -> None:
    async with rig.raising(CompanionError, "killed", opened(rig)) as capture:
        files = capture.files(max_files=1, timeout=None)
        for number in range(20):
            rig.push(str(number), b"1", last=True)
        await anext(files)
        (companion,) = await run_sync(companions)
        os.kill(companion, signal.SIGKILL)
        await capture.wait()

    assert capture.report.skipped_files  # they had finished, and the queue had no room
    with pytest.raises(CompanionError):
        [file async for file in files]


async def test_a_destination_that_fails_there_ends_the_consumers_here(rig: Rig) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 20, before[1]))
    try:
        async with rig.raising(SinkError, "File too large", opened(rig)) as capture:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            files = capture.files()
            waiting = asyncio.ensure_future(anext(files))
            await run_sync(lambda: rig.push("large", os.urandom(16 << 20), last=True))
            assert (await waiting).verdict == "lost"
            with pytest.raises(SinkError, match="File too large"):
                await anext(files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_what_the_companion_logs_is_logged_here(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_companion(
        tmp_path,
        """
    import logging
    from dumpstream.run.session import Session
    close = Session._close_each
    async def told(self):
        logging.getLogger("dumpstream.sinks.zstd").warning("%s is slow", "the disk")
        await close(self)
    Session._close_each = told
""",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    async with opened(rig):
        pass

    assert ("dumpstream.sinks.zstd", logging.WARNING, "the disk is slow") in caplog.record_tuples


_SLOW_CONSUMER = """
signal.signal(signal.SIGINT, signal.default_int_handler)

async def slow():
    async with open_capture(sys.argv[1], acl_library=sys.argv[2], buffer_bytes=8 << 20) as capture:
        assert capture.report.own_process
        files = capture.files(max_files=1, timeout=None)
        for number in range(400):
            push(f"file-{number}".encode())
        await anext(files)
        print(*companions(), flush=True)
        %s

def companions():
    for path in os.listdir("/proc"):
        try:
            words = open(f"/proc/{path}/cmdline", "rb").read()
            parent = open(f"/proc/{path}/stat").read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == str(os.getpid()) and b"dumpstream.companion" in words:
            yield path

anyio.run(slow)
"""


async def test_what_was_in_the_ring_of_a_killed_program_is_stored_though_its_consumer_was_slow(
    rig: Rig,
) -> None:
    done = await run_program(rig, _SLOW_CONSUMER % "os.kill(os.getpid(), signal.SIGKILL)", stdout=-1)
    await until_over(rig)

    assert done.returncode == -signal.SIGKILL
    assert set(await run_sync(rig.read)) == {f"file-{number}" for number in range(400)}
    (companion,) = done.stdout.split()
    while (Path("/proc") / companion).exists():  # noqa: ASYNC110 - not a child of this process
        await anyio.sleep(0.01)


async def test_an_interrupt_of_the_whole_process_group_ends_the_program_and_loses_nothing(rig: Rig) -> None:
    done = await run_program(
        rig,
        _SLOW_CONSUMER % "os.killpg(0, signal.SIGINT)\n        await anyio.sleep_forever()",
        stdout=-1,
        start_new_session=True,
    )
    await until_over(rig)

    assert "KeyboardInterrupt" in done.stderr
    (end,) = await run_sync(rig.ends)
    (companion,) = done.stdout.split()
    assert not (Path("/proc") / companion).exists()
    assert end.outcome == "cancelled"
    files = await run_sync(rig.rows)
    assert len(files) == 400  # each is stored, or is written down as lost


async def test_a_forked_child_neither_takes_files_nor_keeps_the_companion(rig: Rig) -> None:
    async with opened(rig) as capture:
        files = capture.files()
        child = os.fork()
        if child == 0:
            signal.pause()
        rig.push("file", b"1", last=True)
        assert (await anext(files)).name == "file"
        (companion,) = await run_sync(companions)
    ended = companion not in await run_sync(companions)
    os.kill(child, signal.SIGKILL)
    await run_sync(os.waitpid, child, 0)

    assert ended
    assert capture.report.whole


async def test_a_consumer_in_memory_of_this_process_needs_no_companion(rig: Rig) -> None:
    sink = MemorySink()
    async with opened(rig, sinks=[sink]) as capture:
        files = capture.files()
        rig.push("file", b"1", last=True)
        assert await (await anext(files)).read() == b"1"

    assert not capture.report.own_process


async def test_a_capture_in_the_background_ends_with_its_event_loop(rig: Rig) -> None:
    """`asyncio.run` cancels every task, also those of the library, when its main function returns."""
    done = await run_program(
        rig,
        """
import asyncio
import errno
async def background():
    async def capture():
        async with open_capture(sys.argv[1], acl_library=sys.argv[2], buffer_bytes=1 << 20):
            push(b"file")
            entered.set()
            await asyncio.sleep(1000)
    entered = asyncio.Event()
    task = asyncio.create_task(capture())
    await entered.wait()
asyncio.run(background())
""",
    )

    assert done.returncode == 0, done.stderr
    (end,) = await run_sync(rig.ends)
    assert list(await run_sync(rig.rows)) == ["file"]
    assert end.outcome == "cancelled"
