from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
from anyio.to_thread import run_sync
from tests.conftest import make_process

from dumpstream import Chunk, DestinationError, Loss, NotACaptureError, recover
from dumpstream._native import SharedRing
from dumpstream.archive.destination import Destination
from dumpstream.archive.place import DirectoryPlace
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.outside.recovery import RecoveredSource, _stored_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder

pytestmark = pytest.mark.anyio

_DATA = b"no dump header is in these bytes"


def look(source: RecoveredSource, chunk: Chunk) -> tuple[bool, list[Loss]]:
    """Return whether *source* leaves *chunk* out, and the losses that it makes of it."""
    losses: list[Loss] = []
    return source._is_repeated(chunk, losses), losses


def source_of(stored: dict[str, set[tuple[int, str | None]]]) -> RecoveredSource:
    return RecoveredSource(SharedRing(1 << 20), stored)


def test_a_whole_file_that_is_in_the_journal_is_left_out() -> None:
    source = source_of({"a": {(len(_DATA), xxhash.xxh3_64_hexdigest(_DATA))}})

    assert look(source, Chunk("a", _DATA, is_last=True)) == (True, [])
    assert source.statistics().losses == {}


@pytest.mark.parametrize("chunk", [Chunk("a", b"other", is_last=True), Chunk("a", _DATA)])
def test_another_file_of_a_name_in_the_journal_is_doubtful(chunk: Chunk) -> None:
    source = source_of({"a": {(len(_DATA), xxhash.xxh3_64_hexdigest(_DATA))}})

    assert look(source, chunk) == (False, [Loss("a", "collector_died", 0, ended=False)])


def test_a_file_that_may_lack_its_beginning_is_doubtful_once() -> None:
    source = source_of({})

    first = look(source, Chunk("a", _DATA))
    second = look(source, Chunk("a", _DATA, is_last=True))

    assert first == (False, [Loss("a", "collector_died", 0, ended=False)])
    assert second == (False, [])
    assert source.statistics().losses == {"collector_died": (1, 0)}


def test_a_file_that_begins_with_a_header_or_at_an_offset_is_not() -> None:
    source = source_of({})
    header = (2).to_bytes(8, "little") + b"\x0a\x00"

    assert look(source, Chunk("a", header)) == (False, [])
    assert look(source, Chunk("b", _DATA, offset=4096)) == (False, [])


def test_only_what_the_latest_run_stored_counts(builder: CaptureBuilder) -> None:
    builder.add("early", b"1")
    path = builder.finish()
    destination = Destination.open(path, append=True)
    destination.begin_run({})
    builder.write('{"type": "begin", "run": 2, "time": ""}')
    part = builder.add("late", b"22", Verdict.UNPARSED)
    destination.close()

    assert _stored_files(DirectoryPlace(path)) == {"late": {(2, part.xxh3)}}
    assert _stored_files(DirectoryPlace(path / "nothing")) == {}


async def test_only_a_capture_can_be_recovered(tmp_path: Path) -> None:
    with pytest.raises(NotACaptureError, match="does not exist"):
        await recover(tmp_path / "nothing")


async def test_of_a_process_alone_nothing_can_be_recovered(builder: CaptureBuilder) -> None:
    with pytest.raises(DestinationError, match="one process; name the directory above it that the collector"):
        await recover(await run_sync(builder.finish))


async def test_a_process_whose_ring_died_with_its_collector_is_closed(tmp_path: Path) -> None:
    def leave_behind() -> None:
        destination = Destination.open(tmp_path / "run", of_processes=True)
        destination.begin_processes()
        destination.begin_process(make_process(1))
        destination.begin_process(make_process(2, ring=str(tmp_path / "2-0123abcd.ring")))
        destination.close()

    await run_sync(leave_behind)

    in_memory, in_file = await recover(tmp_path / "run")

    assert in_memory.record.ending == in_file.record.ending == "not known: its collector died first"
    assert not in_memory.whole
    assert not in_file.whole
    assert "died with its collector" in (in_memory.record.problem or "")
    assert "is gone, and what was in it is lost" in (in_file.record.problem or "")
    assert await recover(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("options", "kept"), [({"pack": True}, False), ({}, True), ({"pack": True, "spill": "elsewhere"}, True)]
)
async def test_pack_that_a_dead_collector_had_not_written_down_is_deleted_unless_it_may_be_anothers(
    tmp_path: Path, options: dict[str, Any], *, kept: bool
) -> None:
    pack = tmp_path / "run" / "pid-1" / "packs" / "0123abcd-000001.zip"

    def leave_behind() -> None:
        destination = Destination.open(tmp_path / "run", of_processes=True)
        destination.begin_processes()
        process = make_process(1)
        destination.begin_process(process)
        destination.close()
        member = Destination.open(tmp_path / "run" / process.directory)
        member.begin_run(options)
        member.close()
        pack.parent.mkdir()
        pack.write_bytes(b"PK")

    await run_sync(leave_behind)

    (process,) = await recover(tmp_path / "run")

    assert pack.exists() is kept
    assert ("had not recorded: 0123abcd-000001.zip" in (process.record.problem or "")) is not kept


def cut_off(path: Path, **record: Any) -> Path:
    """Leave a capture of one process whose collector died while it packed; return that of the process."""
    destination = Destination.open(path, of_processes=True)
    destination.begin_processes()
    destination.begin_process(make_process(1, **record))
    destination.close()
    member = Destination.open(path / "pid-1")
    member.begin_run({"pack": True})
    member.close()
    return path / "pid-1"


def name_part(member: Path, part: str) -> None:
    row = FileRow("n", 1, 1, Verdict.UNPARSED, [StoredPart("zstd", part, 0, 1, 1, None)])
    with (member / "journal.jsonl").open("a") as journal:
        journal.write(f"{row.to_line()}\n")


def put_packs(directory: Path, *names: str) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"PK")


async def test_packs_of_others_are_not_deleted(tmp_path: Path) -> None:
    member = await run_sync(cut_off, tmp_path / "run")
    packs = ["0123abcd-000001.zip", "0123abcd-000002.zip", "89abcdef-000001.zip", "my.zip"]
    await run_sync(put_packs, member / "packs", *packs)
    await run_sync(name_part, member, f"packs/{packs[0]}")

    (process,) = await recover(tmp_path / "run")

    assert "had not recorded: 0123abcd-000002.zip" in (process.record.problem or "")
    assert sorted(path.name for path in (member / "packs").iterdir()) == [packs[0], packs[2], packs[3]]


async def test_packs_that_a_link_leads_to_are_not_deleted(tmp_path: Path) -> None:
    member = await run_sync(cut_off, tmp_path / "run")
    await run_sync(put_packs, tmp_path / "precious", "0123abcd-000001.zip", "mine.zip")
    await run_sync((member / "packs").symlink_to, tmp_path / "precious")

    await recover(tmp_path / "run")

    assert len(list((tmp_path / "precious").iterdir())) == 2


async def test_a_capture_that_a_link_leads_to_is_left_alone(tmp_path: Path) -> None:
    await run_sync(cut_off, tmp_path / "run")
    elsewhere = await run_sync(cut_off, tmp_path / "elsewhere")
    await run_sync(put_packs, elsewhere / "packs", "0123abcd-000001.zip")
    await run_sync((tmp_path / "run/pid-1").rename, tmp_path / "moved")
    await run_sync((tmp_path / "run/pid-1").symlink_to, elsewhere)
    before = await run_sync(lambda: {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")})

    (process,) = await recover(tmp_path / "run")

    assert "is a symbolic link, and not followed" in (process.record.problem or "")
    assert await run_sync(lambda: {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}) == before


@pytest.mark.parametrize("name", ["journal.jsonl", "manifest.json"])
@pytest.mark.parametrize("kind", ["fifo", "link"])
async def test_what_is_not_a_file_is_not_read_and_does_not_hang(tmp_path: Path, name: str, kind: str) -> None:
    member = await run_sync(cut_off, tmp_path / "run")
    await run_sync(put_packs, member / "packs", "0123abcd-000001.zip")
    await run_sync(partial((member / name).unlink, missing_ok=True))
    if kind == "fifo":
        await run_sync(os.mkfifo, member / name)
    else:
        await run_sync((member / name).symlink_to, "/etc/passwd")

    (process,) = await recover(tmp_path / "run")

    assert name in (process.record.problem or "")
    assert (member / "packs/0123abcd-000001.zip").exists()


async def test_a_file_that_is_not_called_like_a_ring_is_not_taken_for_one(tmp_path: Path) -> None:
    ring = tmp_path / "my.ring"
    await run_sync(lambda: SharedRing(1 << 20, path=str(ring)).close())
    await run_sync(lambda: cut_off(tmp_path / "run", ring=str(ring)))

    (process,) = await recover(tmp_path / "run")

    assert "is not called as a collector calls its rings" in (process.record.problem or "")
    assert ring.exists()


def test_text_that_a_dead_collector_left_open_may_lack_its_end() -> None:
    assert source_of({}).cut_off == "collector_died"
