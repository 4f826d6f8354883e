"""From chunks to stored files: names that come again, gaps, many files at once, names of any kind."""

from __future__ import annotations

import json
import os
import resource
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, Verdict
from dumpstream.cli import main
from dumpstream.sinks.memory import MemorySink
from dumpstream.testing import HOSTILE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.capture.conftest import Rig

    from dumpstream import Capture, SinkError, Stored, WholeFile

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_STEP = 1 << 14  # chunks per hop to the pushing thread


async def test_a_name_that_comes_again_becomes_further_parts_in_order(rig: Rig) -> None:
    memory = MemorySink()
    parts = [b"%d" % number for number in range(50)]

    async with rig.pushed(sinks=["zstd:", memory], pack=False):
        for part in parts:  # without a pause: they come in one batch
            rig.push("again", part, last=True)

    rows = (await run_sync(rig.rows))["again"]
    numbered = ["files/again.dsz", *(f"files/again.{number}.dsz" for number in range(2, 51))]
    assert [row.stored[0].path for row in rows] == numbered
    assert memory.files["again"] == parts
    assert (await run_sync(rig.read))["again"].data == b"".join(parts)


class OneByOneSink(MemorySink):
    """A sink that counts on different names in a call."""

    takes_repeated_names = False

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        self.calls.append([file.name for file in files])
        return await super().put(files)


async def test_a_sink_that_does_not_ask_for_it_gets_no_name_twice_in_one_call(rig: Rig) -> None:
    sink = OneByOneSink()

    async with rig.pushed(sinks=[sink]):
        for number in range(20):  # without a pause: they come in one batch
            rig.push("again" if number % 2 else f"other {number}", b"%d" % number, last=True)

    assert all(len({*names}) == len(names) for names in sink.calls)
    assert sink.files["again"] == [b"%d" % number for number in range(1, 20, 2)]
    assert len(sink.files) == 11


@pytest.mark.parametrize("size", [10, 300_000], ids=["gathered", "written"])
async def test_files_of_one_name_keep_their_bytes_apart_whatever_they_come_in(rig: Rig, size: int) -> None:
    memory = MemorySink()
    expected = []

    async with rig.pushed(RingOptions(buffer_bytes=16 << 20), sinks=[memory]):
        for number in range(6):
            pieces = [bytes([number * 8 + piece]) * size for piece in range(1 + number)]
            for piece in pieces:  # without a pause: they come in one batch
                rig.push("again", piece, last=piece is pieces[-1])
            expected.append(b"".join(pieces))

    assert memory.files["again"] == expected


async def test_a_whole_file_is_safe_while_the_rest_of_its_batch_only_begins_its_name_anew(rig: Rig) -> None:
    whole = os.urandom(200_000)

    async with rig.pushed() as capture:
        rig.push("name", whole, last=True)
        rig.push("name", b"begins again")
        await rig.until(lambda: capture.report.files == 1)

    rows = (await run_sync(rig.rows))["name"]
    assert [row.verdict for row in rows] == [Verdict.UNPARSED, Verdict.NEVER_CLOSED]
    assert (await run_sync(rig.read))["name"].data == whole + b"begins again"


async def test_what_is_behind_a_gap_is_kept_beside_the_file(rig: Rig) -> None:
    async with rig.pushed(pack=False):
        rig.push("gapped", b"prefix", offset=0)
        rig.push("gapped", b"behind", offset=10)
        rig.push("gapped", b"end", offset=20, last=True)

    (row,) = (await run_sync(rig.rows))["gapped"]
    assert row.verdict is Verdict.GAP
    assert row.missing == ((6, 10), (16, 20))
    assert [(part.path, part.offset, part.bytes) for part in row.stored] == [
        ("files/gapped.dsz", 0, 6),
        ("files/gapped.2.dsz", 10, 6),
        ("files/gapped.3.dsz", 20, 3),
    ]


@pytest.mark.parametrize("held_bytes", [0, 1 << 20], ids=["in-a-file", "in-memory"])
async def test_pieces_wait_for_a_gap_to_fill_wherever_they_are_held(rig: Rig, held_bytes: int) -> None:
    data = os.urandom(600_000)
    offsets = [*range(30_000, 600_000, 30_000), 0]

    async with rig.pushed(held_bytes=held_bytes):
        for offset in offsets:
            rig.push("file", data[offset : offset + 30_000], offset=offset, last=offset == 570_000)

    assert (await run_sync(rig.read))["file"] == (Verdict.UNPARSED, data)


async def test_small_files_are_written_out_when_too_much_is_gathered(rig: Rig) -> None:
    names = [f"file {number}" for number in range(40)]
    pieces = [os.urandom(1000) for _ in range(8)]

    async with rig.pushed(gathered_bytes=20_000):
        for piece in pieces:
            for name in names:
                rig.push(name, piece)
        for name in names:
            rig.push(name, last=True)

    read = await run_sync(rig.read)
    assert read == dict.fromkeys(names, (Verdict.UNPARSED, b"".join(pieces)))


async def test_no_more_is_gathered_than_the_options_allow(rig: Rig) -> None:
    def drafted() -> int:
        return sum(path.stat().st_size for path in (rig.path / "files").glob(".*"))

    async with rig.pushed(gathered_bytes=20_000) as capture:
        for number in range(300):  # without a pause: they come in one batch
            rig.push(f"file {number}", os.urandom(1000))
        await rig.until(lambda: capture.report.open_files == 300)
        with anyio.fail_after(20):
            while await run_sync(drafted) < 280_000:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.002)


async def test_a_file_that_is_idle_too_long_is_closed_while_the_capture_goes_on(rig: Rig) -> None:
    async with rig.pushed(idle_timeout=0.05, text_idle_timeout=0.05) as capture:
        rig.push("file", b"data")
        rig.push("text.csv", b"a,b\n1,2\n\0", last=True)
        await rig.until(lambda: capture.report.verdicts == {"complete": 1, "never_closed": 1})

    assert capture.report.files == 2


async def test_an_empty_file_is_a_file(rig: Rig) -> None:
    async with rig.pushed():
        rig.push("empty", last=True)
        rig.push("emptied")
        rig.push("emptied", last=True)

    assert await run_sync(rig.read) == dict.fromkeys(("empty", "emptied"), (Verdict.UNPARSED, b""))


async def test_names_of_any_kind_come_back_as_they_were(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    names = [*HOSTILE_NAMES, "x" * 4095, "a/" * 2047 + "b", "".join(map(chr, range(1, 128)))]

    async with rig.pushed() as capture:
        for name in names:
            assert rig.push(name, os.fsencode(name), last=True) == 0

    assert capture.report.whole
    assert await run_sync(main, ["ls", "--json", str(rig.path)]) == 0
    listed = json.loads(capsys.readouterr().out)["files"]
    assert sorted(row["name"] for row in listed) == sorted(names)
    read = await run_sync(rig.read)
    assert {name: file.data for name, file in read.items()} == {name: os.fsencode(name) for name in names}
    assert sorted(path.name for path in rig.path.parent.iterdir()) == ["acl.json", "capture", "dump"]


async def test_only_its_user_may_read_a_capture(rig: Rig) -> None:
    async with rig.pushed():
        rig.push("directory/file", b"data", last=True)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [rig.path, *rig.path.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def push_in_turns(rig: Rig, count: int) -> Callable[[int, bool], None]:
    def push(first: int, last: bool) -> None:  # noqa: FBT001 - positional for run_sync
        for number in range(first, min(first + _STEP, count)):
            rig.push(f"/dump//{number % 100}/{number}", b"%05d" % number, last=last)

    return push


async def fill(rig: Rig, capture: Capture, count: int, sample: Callable[[], None]) -> None:
    """Open *count* files, and when all are open end each."""
    push = push_in_turns(rig, count)
    for last in (False, True):
        for first in range(0, count, _STEP):
            await run_sync(push, first, last)
            sample()
        await rig.until(lambda: capture.report.open_files == (0 if last else count))  # noqa: B023 - at once
        sample()


async def test_a_hundred_thousand_files_may_be_open_at_once_if_the_options_say_so(rig: Rig) -> None:
    count = 100_000
    before = resident_bytes()
    most_open = most_bytes = 0

    ring = RingOptions(buffer_bytes=16 << 20)
    limits = {"max_open_files": count, "max_open_bytes": 1 << 30}
    async with rig.pushed(ring, sinks=["null:"], **limits) as capture:

        def sample() -> None:
            nonlocal most_open, most_bytes
            most_open = max(most_open, capture.report.open_files)
            most_bytes = max(most_bytes, resident_bytes() - before)

        await fill(rig, capture, count, sample)

    assert most_open == count
    assert capture.report.verdicts == {"unparsed": count}
    assert capture.report.chunks == 2 * count
    assert most_bytes < 400 << 20


async def test_open_files_hold_no_descriptors(rig: Rig) -> None:
    count = 2000
    most = 0

    async with rig.pushed(gathered_bytes=0, max_descriptors=32) as capture:
        before = open_descriptors()

        def sample() -> None:
            nonlocal most
            most = max(most, open_descriptors() - before)

        await fill(rig, capture, count, sample)

    read = await run_sync(rig.read)
    assert read == {
        f"/dump//{number % 100}/{number}": (Verdict.UNPARSED, b"%05d" % number * 2) for number in range(count)
    }
    assert capture.report.whole
    assert most <= 32
