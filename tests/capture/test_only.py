"""Only some files are stored; all of them are seen, judged and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream import PartError, RingOptions, RingSource, StoredCapture, open_capture
from dumpstream.archive.rows import FileRow, parse_line
from dumpstream.format.verdict import Verdict
from dumpstream.reading.verification import verify
from dumpstream.simulation import Workload
from dumpstream.sinks.memory import MemorySink
from dumpstream.sinks.null import NullSink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.capture.conftest import Rig

pytestmark = pytest.mark.anyio

_LARGE = bytes((1 << 20) + 1)  # too large to be put whole


class MeasuringSink(MemorySink):
    """Keeps all that it sees, and says that it does not."""

    stores_bytes = False


def push_both(rig: Rig, kind: str, *chunks: tuple[bytes, int]) -> None:
    """Push a file that is wanted, and one that is not, in these chunks with their offsets."""
    for name in (f"wanted {kind}", f"other {kind}"):
        for number, (data, offset) in enumerate(chunks, 1):
            rig.push(name, data, offset=offset, last=number == len(chunks))


async def test_only_files_that_match_are_stored_however_they_come(rig: Rig) -> None:
    storing, measuring, counting = MemorySink(), MeasuringSink(), NullSink()

    async with rig.pushed(sinks=[storing, measuring, counting, "zstd:"], only=["wanted*"]) as capture:
        push_both(rig, "in one chunk", (b"1", -1))
        push_both(rig, "in two", (b"1", -1), (b"2", -1))
        push_both(rig, "large", (_LARGE, -1), (b"end", -1))
        push_both(rig, "shuffled", (b"34", 2), (b"12", 0))
        push_both(rig, "empty", (b"", -1))

    rows = await run_sync(rig.rows)
    other = {name for name in rows if name.startswith("other")}
    assert {*storing.files} == {*rows} - other
    assert {*measuring.files} == {*rows}
    assert measuring.files["other shuffled"] == [b"1234"]
    assert counting.files == len(rows)
    assert {name for name, of_name in rows.items() if of_name[0].not_stored == "filtered"} == other
    assert all(row.stored == () for name in other for row in rows[name])
    assert all(row.verdict.whole for of_name in rows.values() for row in of_name)
    assert capture.report.not_stored == len(other) == 5
    assert capture.report.whole
    assert capture.report.losses == {}
    verified = await run_sync(rig.verify)
    assert (verified.whole, verified.files, verified.parts, verified.not_stored) == (True, 10, 5, 5)


async def test_what_is_wrong_with_a_file_that_is_not_stored_is_told_all_the_same(rig: Rig) -> None:
    async with rig.pushed(only=["wanted*"]) as capture:
        push_both(rig, "gap", (b"1", 0), (b"9", 9))

    assert capture.report.verdicts == {"gap": 2}
    assert not capture.report.whole
    rows = await run_sync(rig.rows)
    assert rows["other gap"][0].missing == ((1, 9),)


async def test_statistics_have_the_rows_of_all_files(rig: Rig) -> None:
    workload = Workload(models=1, ops=4)

    report = await rig.run(workload, sinks=["zstd:", "stats:"], only="*MatMul*")

    rows = await run_sync(rig.rows)
    assert (report.files, report.not_stored, report.whole) == (4, 3, True)
    assert {part.sink for name, (row,) in rows.items() if "MatMul" not in name for part in row.stored} == {
        "stats"
    }
    assert (await run_sync(rig.verify)).whole


async def test_another_run_may_store_other_files(rig: Rig) -> None:
    for number, only in enumerate((["a"], ["b"], [])):
        async with rig.pushed(only=only, append=number > 0, pack=True):
            rig.push("a", b"%d" % number, last=True)
            rig.push("b", b"%d" % number, last=True)

    found = await run_sync(rig.rows)
    reasons = {name: [row.not_stored for row in rows] for name, rows in found.items()}
    assert reasons == {"a": [None, "filtered", None], "b": ["filtered", None, None]}
    read = await run_sync(rig.read)
    assert {name: data for name, (_, data) in read.items()} == {"a": b"02", "b": b"12"}
    stored = await run_sync(StoredCapture.open, rig.path)
    assert [run.options["only"] for run in stored.manifest.runs] == [["a"], ["b"], []]
    assert (await run_sync(rig.verify)).whole


async def test_a_store_gets_only_files_that_match(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = MemoryStore()
    source = RingSource(RingOptions(buffer_bytes=4 << 20))

    async with open_capture(store, source=source, only=["wanted*"]) as capture:
        push_both(rig, "one", (b"1", -1))
        push_both(rig, "large", (_LARGE, -1), (b"end", -1))

    def read() -> tuple[dict[str, str | None], bool, int]:
        stored = StoredCapture.open(store)
        verified = verify(stored, deep=True)
        return {file.name: file.not_stored for file in stored.files}, verified.whole, verified.parts

    reasons, whole, parts = await run_sync(read)
    assert reasons == {
        "wanted one": None,
        "other one": "filtered",
        "wanted large": None,
        "other large": "filtered",
    }
    assert (whole, parts, capture.report.not_stored) == (True, 2, 2)


async def test_consumers_see_all_files_and_which_are_not_stored(rig: Rig) -> None:
    async with rig.pushed(only=["wanted*"], sinks=["zstd:"]) as capture:
        files = capture.files()
        push_both(rig, "small", (b"1", -1))
        push_both(rig, "large", (_LARGE, -1), (b"end", -1))

    found = {}
    async for file in files:
        if file.name == "other large":  # too large for memory
            with pytest.raises(PartError, match="only= left it out of what is stored"):
                await file.read()
        else:
            found[file.name] = file.not_stored, await file.read()
    assert found == {
        "wanted small": (None, b"1"),
        "other small": ("filtered", b"1"),
        "wanted large": (None, _LARGE + b"end"),
    }


@pytest.mark.parametrize("only", ["", [""], ["a", ""], [3]])
async def test_what_is_not_a_pattern_is_refused(rig: Rig, only: object) -> None:
    with pytest.raises(ValueError, match=r"only must be patterns such as '\*MatMul\*'"):
        async with rig.pushed(only=only):
            pass


def test_a_line_keeps_why_a_file_was_not_stored() -> None:
    row = FileRow("a", 1, 1, Verdict.COMPLETE, (), not_stored="filtered")

    assert parse_line(f"{row.to_line()}\n".encode()) == row
    assert b"not_stored" not in row._replace(not_stored=None).to_line().encode()
