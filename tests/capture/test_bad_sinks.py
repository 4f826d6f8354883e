"""What sinks do that break their promises, and that no file may vanish for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import SinkError, Stored
from dumpstream.sinks._failure import refuse_unwritable
from dumpstream.sinks.null import NullSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.capture.conftest import Rig

    from dumpstream import WholeFile

pytestmark = pytest.mark.anyio

_LARGE = bytes(2 << 20)


class LyingSink(NullSink):
    """Returns something else than it should."""

    def __init__(self, stored: Any) -> None:
        super().__init__()
        self._stored = stored

    async def put(self, files: Sequence[WholeFile]) -> Any:
        return self._stored

    async def open(self, name: str, *, offset: int = 0) -> LyingSink:  # type: ignore[override]
        return self

    async def write(self, pieces: Any) -> None:
        pass

    async def commit(self) -> Any:
        return self._stored

    async def abort(self) -> None:
        pass


class CancellingSink(NullSink):
    """Lets the cancellation of something of its own escape."""

    async def put(self, files: Sequence[WholeFile]) -> Any:
        raise asyncio.CancelledError


class SlowSink(NullSink):
    """Answers the first call when told to, and no later one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.answer = anyio.Event()

    async def put(self, files: Sequence[WholeFile]) -> Any:
        self.calls += 1
        if self.calls == 1:
            await self.answer.wait()
            return [Stored()] * len(files)
        return await anyio.sleep_forever()


class ClingingSink(NullSink):
    """Never closes."""

    async def aclose(self) -> None:
        await anyio.sleep_forever()


@pytest.mark.parametrize("stored", [None, [None], [Stored(path=5)], [], 7])  # type: ignore[arg-type]
@pytest.mark.parametrize("data", [b"small", _LARGE], ids=["put", "commit"])
async def test_a_result_that_is_none_is_a_failure_of_the_sink(rig: Rig, stored: Any, data: bytes) -> None:
    async with rig.raising(SinkError, "lying sink failed", rig.pushed(sinks=[LyingSink(stored)])) as capture:
        rig.push("file", data, last=True)
        await capture.wait()

    rows = await run_sync(rig.rows)
    assert [(row.verdict, row.cause) for row in rows["file"]] == [("lost", "sink_failed")]
    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]


async def test_a_cancellation_that_escapes_a_sink_is_a_failure_of_the_sink(rig: Rig) -> None:
    async with rig.raising(SinkError, "CancelledError", rig.pushed(sinks=[CancellingSink()])) as capture:
        rig.push("file", b"bytes", last=True)
        await capture.wait()

    assert not capture.report.whole
    assert [row.cause for row in (await run_sync(rig.rows))["file"]] == ["sink_failed"]


async def test_no_call_begins_after_the_cancellation(rig: Rig) -> None:
    sink = SlowSink()

    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with rig.pushed(sinks=[sink]) as capture:
            for number in range(3):  # one answered soon, one never, one that waits for its turn
                rig.push(f"file{number}", b"bytes", last=True)
                await rig.until(lambda: capture.report.chunks > number)  # noqa: B023 - called before it changes
            rig.push("file3", b"bytes", last=True)
            sink.answer.set()
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)

    assert sink.calls == 2
    assert capture.report.files == 4
    assert [end.outcome for end in await run_sync(rig.ends)] == ["cancelled"]


async def test_a_sink_that_never_closes_cannot_hold_up_a_cancellation(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.run.session._CLOSE_S", 0.1)

    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with rig.pushed(sinks=[ClingingSink()]):
            rig.push("file", b"bytes", last=True)
            scope.cancel()
            await anyio.sleep_forever()

    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]


@pytest.mark.parametrize("kind", ["zstd", "stats"])
@pytest.mark.parametrize("place", ["file", "file/below"])
async def test_a_place_that_cannot_be_written_is_refused_before_the_first_file(
    rig: Rig, tmp_path: Path, kind: str, place: str
) -> None:
    await run_sync((tmp_path / "file").write_text, "in the place of a directory")

    with pytest.raises(SinkError, match=r"cannot write to .*file.*: Not a directory; remove what is in"):
        async with rig.pushed(sinks=[f"{kind}:{tmp_path / place}"]):
            pytest.fail("was entered")

    assert not rig.path.exists()


@pytest.mark.parametrize("kind", ["zstd", "stats"])
async def test_a_file_system_without_new_files_is_refused_before_the_first(rig: Rig, kind: str) -> None:
    with pytest.raises(SinkError, match=r"cannot write to /proc/dumps \(.*\): .*choose another"):
        async with rig.pushed(sinks=[f"{kind}:/proc/dumps"]):
            pytest.fail("was entered")

    assert not rig.path.exists()


async def test_a_place_that_is_missing_is_not_made_by_looking_at_it(tmp_path: Path) -> None:
    await run_sync(refuse_unwritable, "zstd", tmp_path / "new" / "one")

    assert await run_sync(os.listdir, tmp_path) == []


#: Root may write anywhere, so a test that runs as root looks as another user, once everything is loaded.
_LOOK = """
import os, sys
from pathlib import Path
from dumpstream import SinkError
from dumpstream.sinks._failure import refuse_unwritable
if os.geteuid() == 0:
    os.setuid(12345)
try:
    refuse_unwritable("zstd", Path(sys.argv[1]))
except SinkError as exc:
    print(exc)
"""


async def test_a_place_without_permission_is_refused_with_the_remedy() -> None:
    with TemporaryDirectory(dir="/tmp") as directory:  # a path that the other user can reach
        closed = Path(directory) / "closed"
        await run_sync(Path(directory).chmod, 0o755)
        await run_sync(closed.mkdir, 0o555)
        command = [sys.executable, "-c", _LOOK, str(closed / "below")]
        done = await run_sync(lambda: subprocess.run(command, capture_output=True, check=True, text=True))

    assert "Permission denied; make the destination writable or choose another" in done.stdout
