from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import xxhash
from anyio.to_thread import run_sync
from tests.conftest import make_process

from dumpstream import Chunk, Loss, NotACaptureError, recover
from dumpstream._native import SharedRing
from dumpstream.archive.destination import Destination
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

    assert _stored_files(path) == {"late": {(2, part.xxh3)}}
    assert _stored_files(path / "nothing") == {}


async def test_only_a_capture_can_be_recovered(tmp_path: Path) -> None:
    with pytest.raises(NotACaptureError, match="does not exist"):
        await recover(tmp_path / "nothing")


async def test_a_process_whose_ring_died_with_its_collector_is_closed(tmp_path: Path) -> None:
    def leave_behind() -> None:
        destination = Destination.open(tmp_path / "run", of_processes=True)
        destination.begin_processes()
        destination.begin_process(make_process(1))
        destination.begin_process(make_process(2, ring=str(tmp_path / "gone.ring")))
        destination.close()

    await run_sync(leave_behind)

    in_memory, in_file = await recover(tmp_path / "run")

    assert in_memory.record.ending == in_file.record.ending == "not known: its collector died first"
    assert not in_memory.whole
    assert not in_file.whole
    assert "died with its collector" in (in_memory.record.problem or "")
    assert "is gone, and what was in it is lost" in (in_file.record.problem or "")
    assert await recover(tmp_path / "run") == []


@pytest.mark.parametrize(("options", "kept"), [({}, False), ({"spill": "elsewhere"}, True)])
async def test_pack_that_a_dead_collector_had_not_written_down_is_deleted_unless_a_spill_may_name_it(
    tmp_path: Path, options: dict[str, str], *, kept: bool
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


def test_text_that_a_dead_collector_left_open_may_lack_its_end() -> None:
    assert source_of({}).cut_off == "collector_died"
