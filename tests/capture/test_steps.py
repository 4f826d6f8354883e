"""Steps that a program marks: in the journal, in statistics and in what is read back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from anyio.to_thread import run_sync

import dumpstream
from dumpstream import Batch, Chunk, ChunkSource, Loss, StoredCapture, open_capture
from dumpstream.analysis.measurement import measure
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from tests.capture.conftest import Rig

pytestmark = pytest.mark.anyio

NAMED = "/dump/20260101000000/0/model/1/5/Add.op.1.2.3"


def steps(rig: Rig) -> dict[str, int | None]:
    """Return the marked step of every file."""
    return {file.name: file.step for file in StoredCapture.open(rig.path).files}


@pytest.mark.parametrize("own_process", [False, True])
async def test_files_have_the_step_that_was_marked_when_they_began(rig: Rig, *, own_process: bool) -> None:
    async with open_capture(
        rig.path, acl_library=rig.library, buffer_bytes=4 << 20, own_process=own_process
    ) as capture:
        rig.push("before", b"1", last=True)
        capture.step(3)
        rig.push("whole", b"1", last=True)
        rig.push("long", b"1")
        rig.push(NAMED, b"1", last=True)
        dumpstream.step(4)
        rig.push("long", b"2", last=True)
        rig.push("after", b"1", last=True)
    capture.step(9)

    found = await run_sync(steps, rig)
    assert found == {"before": None, "whole": 3, NAMED: None, "long": 3, "after": 4}
    lines = (rig.path / "journal.jsonl").read_text().splitlines()
    assert '"step"' not in next(line for line in lines if "before" in line)


async def test_statistics_take_the_step_when_they_are_written_and_when_computed_later(rig: Rig) -> None:
    (file, *_) = Workload(ops=1).expected_files(rig.dump_path)
    large = file.data + bytes(2 << 20)  # written, not put
    async with rig.pushed(sinks=["zstd:", "stats:"]) as capture:
        capture.step(12)
        rig.push("Add.op.1.2.3", file.data, last=True)
        rig.push("Sub.op.1.2.3", large[: 1 << 20])
        rig.push("Sub.op.1.2.3", large[1 << 20 :], last=True)

    def iterations(**options: Any) -> set[tuple[str, int | None]]:
        return {(row.file, row.iteration) for it in measure([rig.path], **options) for row in it.rows}

    expected = {("Add.op.1.2.3", 12), ("Sub.op.1.2.3", 12)}
    assert await run_sync(iterations) == expected
    assert await run_sync(lambda: iterations(histogram=True)) == expected


async def test_ls_shows_steps(rig: Rig) -> None:
    async with rig.pushed() as capture:
        rig.push("a", b"1", last=True)
        capture.step(12345)
        rig.push("b", b"1", last=True)
        rig.push(NAMED, b"1", last=True)

    def ls(*flags: str) -> str:
        command = [sys.executable, "-m", "dumpstream", "ls", str(rig.path), *flags]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    listed = json.loads(await run_sync(ls, "--json"))
    assert {file["name"]: file["step"] for file in listed["files"]} == {"a": None, "b": 12345, NAMED: 5}
    words = [line.split() for line in (await run_sync(ls)).splitlines() if line]
    assert words[0][0] == "step"
    assert {line[-1]: line[0] for line in words[1:4]} == {"a": "-", "b": "12345", NAMED: "-"}


async def test_consumers_see_the_step(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files()
        capture.step(1)
        rig.push("a", b"1", last=True)
        assert (await anext(files)).step == 1
        capture.step(2)
        rig.push("a", b"1", last=True)
        assert (await anext(files)).step == 2


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (10**18, ValueError), ("1", TypeError)])
async def test_what_is_no_step_is_refused(rig: Rig, step: Any, error: type[Exception]) -> None:
    async with rig.pushed() as capture:
        with pytest.raises(error):
            capture.step(step)
    with pytest.raises(error):
        dumpstream.step(step)
    with pytest.raises(error):
        Batch([], [], step=step)


async def test_a_source_of_its_own_says_the_step_by_its_batches(rig: Rig) -> None:
    class Stepping(ChunkSource):
        async def receive(self) -> Batch:
            batch = await super().receive()
            batch.step = 6
            return batch

    source = Stepping([Loss("lost", "full", 1, ended=True), Chunk("a", b"1", is_last=True)])
    async with open_capture(rig.path, source=source) as capture:
        with pytest.raises(ValueError, match="says the steps itself"):
            capture.step(1)

    assert await run_sync(steps, rig) == {"lost": None, "a": 6}


def test_without_a_capture_a_mark_does_nothing() -> None:
    dumpstream.step(1)
