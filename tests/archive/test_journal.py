from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.archive.journal import Journal
from dumpstream.archive.rows import (
    BeginRow,
    EndRow,
    FileRow,
    LossRow,
    MergedRow,
    Outcome,
    StoredPart,
    UnreadableRow,
    read_journal,
    read_rows,
)
from dumpstream.format.verdict import Verdict
from dumpstream.system.durable import Fsync

if TYPE_CHECKING:
    from pathlib import Path

PART = StoredPart("zstd", "files/a.zst", 0, 3, 12, "0" * 16)
STATS = StoredPart("stats", "stats/1.parquet", 0, 3, 0, None)
TWO_PARTS = FileRow("a", 3, 1, Verdict.SHORT, [PART, STATS]).to_line()
ROW_OF_PACK = FileRow("b", 3, 1, Verdict.COMPLETE, [PART._replace(path="packs/1.zip", start=30)]).to_line()
ROW = FileRow("a", 3, 1, Verdict.COMPLETE, [PART]).to_line()

# Every byte sequence without NUL, as the runtime's names come.
names = st.binary(min_size=1).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"/")))
counts = st.integers(0, 2**62 - 1)
stored_parts = st.builds(
    StoredPart,
    st.text(),
    st.none() | names,
    counts,
    counts,
    counts,
    st.none() | st.text(),
    st.none() | counts,
    st.none() | st.text(),
)


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def _as_json(part: StoredPart) -> dict[str, Any]:
    """Return the fields that a line has: some only for packs and object stores."""
    fields = part._asdict()
    return {key: value for key, value in fields.items() if value is not None or key not in {"start", "etag"}}


class TestRows:
    @given(
        names,
        st.sampled_from(Verdict),
        st.lists(stored_parts, max_size=3),
        st.fixed_dictionaries(
            {"bytes": counts, "chunks": counts},
            optional={
                "cause": st.text(),
                "lost_bytes": st.integers(1, 2**62),
                "missing": st.lists(st.tuples(counts, counts), min_size=1, max_size=3),
                "duplicates": st.integers(1, 2**62),
            },
        ),
    )
    @settings(max_examples=200, deadline=None)
    def test_file_row_means_what_json_dumps_would_write(
        self, name: str, verdict: Verdict, stored: list[StoredPart], fields: dict[str, Any]
    ) -> None:
        whole = {
            "type": "file",
            "name": name,
            "verdict": verdict,
            "stored": [_as_json(part) for part in stored],
            **fields,
        }

        size, chunks = fields.pop("bytes"), fields.pop("chunks")
        line = FileRow(name, size, chunks, verdict, stored, **fields).to_line()

        assert line.isascii()
        assert "\n" not in line
        assert json.loads(line) == json.loads(json.dumps(whole))

    @given(st.data())
    @settings(max_examples=500, deadline=None)
    def test_common_line_is_read_as_json_reads_it_also_with_a_fault(self, data: st.DataObject) -> None:
        line = f"{data.draw(st.sampled_from([ROW, TWO_PARTS, ROW_OF_PACK]))}\n"
        start = data.draw(st.integers(0, len(line)))
        end = data.draw(st.integers(start, min(start + 3, len(line))))
        faulty = line[:start] + data.draw(st.text('{}[],:"\\ \t\n\0é0129aenul', max_size=3)) + line[end:]

        rows = list(read_rows([faulty.encode()]))

        # With a space in front, it is not one of the common lines.
        assert rows == list(read_rows([b" " + faulty.encode()]))

    def test_rows_come_back_as_they_were_written(self, journal_path: Path) -> None:
        part = StoredPart("zstd", "files/\udcff.zst", 7, 3, 12, None)
        packed = StoredPart("s3", "packs/1.zip", 0, 3, 12, "0" * 16, 9, '"tag"')
        lines = [
            BeginRow(1, "then").to_line(),
            FileRow(
                "\udcff", 3, 2, Verdict.GAP, [part], cause="full", lost_bytes=4, missing=[(0, 7)]
            ).to_line(),
            FileRow("b", 3, 1, Verdict.COMPLETE, [packed]).to_line(),
            LossRow("full", 2, 9).to_line(),
            EndRow(1, "now", Outcome.FAILED, {"files": 1}).to_line(),
            MergedRow(7).to_line(),
        ]
        journal_path.write_text("\n".join(lines) + "\n", encoding="ascii")

        rows = list(read_journal(journal_path))

        assert rows == [
            BeginRow(1, "then"),
            FileRow("\udcff", 3, 2, Verdict.GAP, (part,), "full", 4, ((0, 7),)),
            FileRow("b", 3, 1, Verdict.COMPLETE, (packed,)),
            LossRow("full", 2, 9),
            EndRow(1, "now", Outcome.FAILED, {"files": 1}),
            MergedRow(7),
        ]


class TestReading:
    def test_line_cut_off_at_the_end_is_torn(self, journal_path: Path) -> None:
        journal_path.write_text(f"{ROW}\n{ROW[:40]}", encoding="ascii")

        rows = list(read_journal(journal_path))

        assert rows[1:] == [UnreadableRow(2, torn=True)]

    def test_line_cut_off_before_a_later_run_is_torn(self, journal_path: Path) -> None:
        journal_path.write_text(f"{ROW[:40]}\n{BeginRow(2, 'then').to_line()}\n", encoding="ascii")

        rows = list(read_journal(journal_path))

        assert rows == [UnreadableRow(1, torn=True), BeginRow(2, "then")]

    def test_last_line_without_its_newline_is_read(self, journal_path: Path) -> None:
        journal_path.write_text(ROW, encoding="ascii")

        rows = list(read_journal(journal_path))

        assert [type(row) for row in rows] == [FileRow]

    @pytest.mark.parametrize(
        "line",
        [
            b"\xff\x00",
            b"",
            b"7",
            b"{}",
            b'{"type":["file"]}',
            b'{"type":"later"}',
            b'{"type":"begin","run":-1,"time":""}',
            b"[" * 200_000,
            ROW.replace('"bytes":3', '"bytes":"3"').encode(),
            ROW.replace('"bytes":3', '"bytes":99999999999999999999').encode(),
            ROW.replace("complete", "fine").encode(),
            ROW.replace('"name":"a"', '"name":"\\u0000"').encode(),
            ROW.replace("files/a.zst", "files/\\ud800").encode(),
        ],
    )
    def test_damage_in_the_middle_is_told_and_passed_over(self, journal_path: Path, line: bytes) -> None:
        journal_path.write_bytes(f"{ROW}\n".encode() + line + f"\n{ROW}\n".encode())

        rows = list(read_journal(journal_path))

        assert rows[1] == UnreadableRow(2, torn=False)
        assert [type(row) for row in rows] == [FileRow, UnreadableRow, FileRow]

    def test_link_is_not_followed(self, journal_path: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").write_text(f"{ROW}\n")
        journal_path.symlink_to("elsewhere")

        with pytest.raises(OSError, match="symbolic") as caught:
            list(read_journal(journal_path))

        assert caught.value.errno == errno.ELOOP

    def test_fifo_in_its_place_is_refused_without_waiting(self, journal_path: Path) -> None:
        os.mkfifo(journal_path)

        with pytest.raises(OSError, match="not a regular file"):
            list(read_journal(journal_path))


@pytest.mark.anyio
class TestWriting:
    async def test_lines_are_there_after_drain_in_order(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            for number in range(1000):
                journal.add(str(number))
            await journal.drain()

            lines = await anyio.Path(journal_path).read_text()

        assert lines == "".join(f"{number}\n" for number in range(1000))

    async def test_lines_added_at_once_share_one_write(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            writes = 0
            write = journal._write_all

            def counted() -> None:
                nonlocal writes
                writes += 1
                write()

            journal._write_all = counted  # type: ignore[method-assign]
            for number in range(1000):
                journal.add(str(number))
            await journal.drain()

        assert writes == 1

    async def test_lines_are_written_without_being_asked_for(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            journal.add("line")

            assert journal._flush is not None
            await journal._flush

            assert await anyio.Path(journal_path).read_text() == "line\n"

    async def test_closing_writes_the_rest(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            journal.add("line")

        assert await anyio.Path(journal_path).read_text() == "line\n"

    async def test_opening_in_a_cancelled_scope_leaves_nothing_open(self, journal_path: Path) -> None:
        def open_files() -> set[str]:
            return {os.path.realpath(link) for link in os.scandir("/proc/self/fd")}

        with anyio.CancelScope() as scope:
            scope.cancel()
            async with Journal.open(journal_path):
                await anyio.sleep_forever()

        assert await anyio.Path(journal_path).exists()
        assert str(journal_path) not in await anyio.to_thread.run_sync(open_files)

    async def test_closing_in_a_cancelled_scope_writes_the_rest(self, journal_path: Path) -> None:
        with anyio.CancelScope() as scope:
            async with Journal.open(journal_path) as journal:
                journal.add("line")
                scope.cancel()
                await anyio.sleep_forever()

        assert await anyio.Path(journal_path).read_text() == "line\n"

    async def test_error_of_the_block_comes_through_as_it_is(self, journal_path: Path) -> None:
        with pytest.raises(LookupError, match="mine"):
            async with Journal.open(journal_path):
                raise LookupError("mine")

    async def test_reopening_appends_and_closes_a_torn_line(self, journal_path: Path) -> None:
        await anyio.Path(journal_path).write_text('{"type"')

        async with Journal.open(journal_path) as journal:
            journal.add("line")

        assert await anyio.Path(journal_path).read_text() == '{"type"\nline\n'

    async def test_much_that_waits_makes_it_full_until_drained(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            while not journal.full:
                journal.add("x" * 100_000)

            await journal.drain()

            assert not journal.full

    @pytest.mark.parametrize("fsync", Fsync)
    async def test_every_fsync_policy_writes_the_same(self, journal_path: Path, fsync: Fsync) -> None:
        async with Journal.open(journal_path, fsync=fsync) as journal:
            journal.add("line")
            await journal.drain()

        assert await anyio.Path(journal_path).read_text() == "line\n"

    async def test_file_is_private(self, journal_path: Path) -> None:
        async with Journal.open(journal_path):
            mode = (await anyio.Path(journal_path).stat()).st_mode

        assert mode & 0o777 == 0o600

    async def test_link_is_not_followed(self, journal_path: Path, tmp_path: Path) -> None:
        await anyio.Path(journal_path).symlink_to("elsewhere")

        with pytest.raises(OSError, match="symbolic"):
            async with Journal.open(journal_path):
                pass

        assert not await anyio.Path(tmp_path / "elsewhere").exists()

    async def test_adding_after_closing_is_refused(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            pass

        with pytest.raises(ValueError, match="closed"):
            journal.add("line")
