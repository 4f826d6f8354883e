from __future__ import annotations

import os
import secrets
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpstream._errors import DumpstreamError
from dumpstream._native import hash_name, scan_journal
from dumpstream.archive import journalfile
from dumpstream.archive.journalfile import VERDICTS, JournalFile, JournalLine
from dumpstream.archive.rows import FileRow, StoredPart, UnreadableRow, parse_line, read_rows
from dumpstream.format.verdict import Verdict
from dumpstream.reading.filelist import summary_of
from dumpstream.reading.storedfile import StoredFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY = bytes(range(16))
PART = StoredPart("zstd", "packs/1.zip", 0, 3, 12, "0" * 16, 30)

names = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7F), max_size=9) | st.binary(
    min_size=1
).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"/")))
counts = st.sampled_from([0, 1, 10**18 - 1, 10**18, 2**62 - 1])
parts = st.builds(
    StoredPart,
    st.sampled_from(["zstd", "s3", '"']),
    st.sampled_from([None, "files/a.zst", "s3://bucket/a", "\\", "\u00e9"]),
    st.sampled_from([0, 7]),
    counts,
    counts,
    st.sampled_from([None, "0" * 16]),
    st.none() | counts,
    st.sampled_from([None, "e", '"e"', "\\", '\\"']),
)
rows = st.builds(
    FileRow,
    names,
    counts,
    counts,
    st.sampled_from(Verdict),
    st.lists(parts, max_size=3),
    st.none() | names,
    not_stored=st.sampled_from([None, "filtered", "other"]),
)
edits = st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=1)), max_size=2)


def lines_of(block: bytes, needle: bytes = b"") -> list[JournalLine]:
    return [*JournalFile.empty().lines(block, KEY, needle)]


def changed(written: Sequence[tuple[FileRow, Sequence[tuple[int, bytes]]]]) -> bytes:
    """Return the lines of rows, in each of which some bytes are changed."""
    block = bytearray()
    for intended, changes in written:
        line = bytearray(intended.to_line().encode() + b"\n")
        for position, byte in changes:
            at = position % len(line)
            line[at : at + 1] = byte
        block += line
    return bytes(block)


class TestLines:
    @given(st.lists(st.tuples(rows, edits), max_size=4))
    def test_whatever_a_line_is_the_scan_and_the_reader_of_json_agree(
        self, written: Sequence[tuple[FileRow, Sequence[tuple[int, bytes]]]]
    ) -> None:
        block = changed(written)

        found = lines_of(block)

        assert b"".join(block[it.start : it.start + it.length] for it in found) == block
        for it in found:
            if it.is_common:
                row = parse_line(block[it.start : it.start + it.length])
                assert isinstance(row, FileRow)
                start = it.start + len('{"type":"file","name":"')
                assert block[start : start + it.name_length].decode() == row.name
                assert it.hash == hash_name(row.name.encode(), KEY)
                assert (it.bytes, it.chunks, VERDICTS[it.verdict]) == (row.bytes, row.chunks, row.verdict)
                assert it.stored_bytes == sum(part.stored_bytes for part in row.stored)
                assert it.stored == len(row.stored)
                assert it.is_filtered == (row.not_stored == "filtered") == (row.not_stored is not None)
                assert not any(part.offset for part in row.stored)
                assert it.at_url == any("://" in (part.path or "") for part in row.stored)

    @given(st.lists(st.tuples(rows, edits), max_size=4))
    def test_summaries_are_those_of_the_common_lines(
        self, written: Sequence[tuple[FileRow, Sequence[tuple[int, bytes]]]]
    ) -> None:
        block = changed(written)
        expected, elsewhere = [], []
        for it in lines_of(block):
            if it.is_common:
                row = parse_line(block[it.start : it.start + it.length])
                assert isinstance(row, FileRow)
                expected.append(summary_of(StoredFile(row.name, (row,))))
            else:
                elsewhere.append((len(expected), it.start, it.length))

        assert JournalFile.empty().summaries(block) == (expected, elsewhere)

    def test_ordinary_rows_are_common(self) -> None:
        row = FileRow("/a//b", 3, 1, Verdict.COMPLETE, [PART, PART._replace(sink="s3", etag='"tag"')])

        filtered = row._replace(not_stored="filtered")
        block = b"".join(it.to_line().encode() + b"\n" for it in (row, filtered))

        assert [(line.is_common, line.is_filtered) for line in lines_of(block)] == [(1, 0), (1, 1)]

    @given(st.lists(st.sampled_from([b"a", b"ab", b"ba", b""])), st.sampled_from([b"a", b"ab", b"b"]))
    def test_needle_finds_exactly_the_lines_that_contain_it(self, texts: list[bytes], needle: bytes) -> None:
        block = b"".join(text + b"\n" for text in texts)

        found = [block[it.start : it.start + it.length - 1] for it in lines_of(block, needle)]

        assert found == [text for text in texts if needle in text]

    def test_wrong_arguments_are_refused(self) -> None:
        with pytest.raises(ValueError, match="16 bytes"):
            scan_journal(b"", b"short", (), b"")
        with pytest.raises(ValueError, match="too many"):
            scan_journal(b"", KEY, ("a",) * 17, b"")
        with pytest.raises(TypeError):
            scan_journal(b"", KEY, (1,), b"")  # type: ignore[arg-type]


class TestBlocks:
    @given(lengths=st.lists(st.integers(0, 40), max_size=12), ended=st.booleans())
    def test_blocks_are_whole_lines_and_together_everything(self, lengths: list[int], *, ended: bool) -> None:
        lines = [secrets.token_hex(length)[:length].encode() + b"\n" for length in lengths]
        data = b"".join(lines) + (b"" if ended else b"rest")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journalfile, "_BLOCK_BYTES", 16)
            blocks = [*JournalFile.copy([data]).blocks()]

        assert b"".join(block for _, block in blocks) == data
        assert all(block.endswith(b"\n") for _, block in blocks[:-1])
        assert [offset for offset, _ in blocks] == [
            sum(len(block) for _, block in blocks[:number]) for number in range(len(blocks))
        ]

    def test_line_that_is_too_long_is_one_unreadable_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journalfile, "_BLOCK_BYTES", 64)
        monkeypatch.setattr(journalfile, "_LONGEST_LINE", 256)
        long = FileRow("x" * 1000, 0, 1, Verdict.LOST, []).to_line().encode() + b"\n"
        short = FileRow("a", 0, 1, Verdict.LOST, []).to_line().encode() + b"\n"

        journal = JournalFile.copy([short, long, short])

        found = [row for _, block in journal.blocks() for row in read_rows([block])]
        assert [type(row) for row in found] == [FileRow, UnreadableRow, FileRow]

    def test_lines_that_are_added_later_are_not_seen(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"one\n")
        journal = JournalFile.open(path)

        with path.open("ab") as file:
            file.write(b"two\n")

        assert [*journal.blocks()] == [(0, b"one\n")]

    def test_journal_that_is_cut_off_while_it_is_read_is_not_taken_for_all(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"one\ntwo\n")
        journal = JournalFile.open(path)

        os.truncate(path, 4)

        with pytest.raises(DumpstreamError, match=r"cut off while it was read; run the command again"):
            [*journal.blocks()]

    def test_row_is_read_at_its_offset_however_long_it_is(self) -> None:
        row = FileRow("x" * 100_000, 0, 1, Verdict.LOST, ())
        line = row.to_line().encode() + b"\n"

        journal = JournalFile.copy([b"first\n", line, line])

        assert [*journal.rows_at([6, 6 + len(line)])] == [*journal.rows_at([6])] * 2 == [row, row]
        for wrong in (0, journal.size, journal.size + 5):
            with pytest.raises(ValueError, match=str(wrong)):
                next(journal.rows_at([wrong]))

    @given(
        st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=40), st.sampled_from([b"", b"\n"])
    )
    def test_rows_are_read_at_any_of_their_offsets(
        self, lines: list[tuple[int, bool]], newline: bytes
    ) -> None:
        rows = [
            FileRow(f"{number}{'x' * length}", 0, 1, Verdict.LOST, ())
            for number, (length, _) in enumerate(lines)
        ]
        texts = [row.to_line().encode() + b"\n" for row in rows]
        if texts:
            texts[-1] = texts[-1][:-1] + newline
        journal = JournalFile.copy(texts)
        starts = [0, *accumulate(map(len, texts))]
        wanted = [number for number, (_, is_wanted) in enumerate(lines) if is_wanted]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journalfile, "_LINE_BYTES", 16)
            patch.setattr(journalfile, "_BLOCK_BYTES", 1024)
            assert [*journal.rows_at(starts[it] for it in wanted)] == [rows[it] for it in wanted]

    def test_rows_that_are_close_to_each_other_are_read_together(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = FileRow("a", 0, 1, Verdict.LOST, ()).to_line().encode() + b"\n"
        journal = JournalFile.copy([line] * 10_000)
        reads: list[int] = []
        read = os.pread

        def counted(fd: int, size: int, offset: int) -> bytes:
            reads.append(size)
            return read(fd, size, offset)

        monkeypatch.setattr(os, "pread", counted)

        found = sum(1 for _ in journal.rows_at(range(0, journal.size, len(line))))

        assert found == 10_000
        assert len(reads) < 20
        assert sum(reads) < 2 * journal.size
