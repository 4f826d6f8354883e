from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dumpstream._errors import DumpstreamError
from dumpstream.archive.journalfile import JournalFile
from dumpstream.archive.rows import BeginRow, FileRow, LossRow, StoredPart, UnreadableRow, read_rows
from dumpstream.format.verdict import Verdict
from dumpstream.reading import index as index_module
from dumpstream.reading.filelist import FileList, summary_of
from dumpstream.reading.index import Index, open_index
from dumpstream.reading.storedfile import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dumpstream.archive.journalfile import JournalLine

PART = StoredPart("zstd", "packs/1.zip", 0, 3, 12, "0" * 16, 30)


def line(name: str, verdict: Verdict = Verdict.COMPLETE, size: int = 3) -> bytes:
    return FileRow(name, size, 1, verdict, [PART]).to_line().encode() + b"\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the index of every journal, however small, in a cache of the test's own."""
    monkeypatch.setattr(index_module, "_SMALL_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dumpstream"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line("a") + line("b") + line("a", Verdict.SHORT))
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def opened(path: Path) -> Index:
    return open_index(JournalFile.open(path), str(path))


def names(index: Index) -> list[str]:
    return [file.name for file in FileList(index)]


def inodes(cache: Path) -> list[int]:
    return [path.stat().st_ino for path in cache.iterdir()]


class TestFiles:
    journals = st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "\u00e9", '"', "c" * 300]),
            st.integers(0, 9),
            st.integers(0, 9),
            st.sampled_from(Verdict),
            st.sampled_from([(), (PART,), (PART, PART._replace(offset=9))]),
        ).map(lambda fields: FileRow(*fields))
        | st.sampled_from([BeginRow(1, ""), LossRow("full", 1, 2), "garbage"]),
        max_size=12,
    )

    @given(journals, st.integers(0, 12))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_index_tells_what_a_reader_of_all_rows_does(
        self, cache: Path, tmp_path: Path, written: Sequence[FileRow | BeginRow | str], first: int
    ) -> None:
        lines = [(it if isinstance(it, str) else it.to_line()).encode() + b"\n" for it in written]
        path = tmp_path / f"{os.urandom(8).hex()}.jsonl"
        path.write_bytes(b"".join(lines[:first]))
        opened(path)  # what it keeps is extended
        append(path, b"".join(lines[first:]))

        index = opened(path)

        expected: dict[str, list[FileRow]] = {}
        for row in read_rows(lines):
            if isinstance(row, FileRow):
                expected.setdefault(row.name, []).append(row)
        files = [StoredFile(name, rows) for name, rows in expected.items()]
        found = FileList(index)
        assert [(file.name, file.rows) for file in found] == [(file.name, file.rows) for file in files]
        assert len(found) == len(files)
        others = [file for file in files if file.name != "a" or len(file.rows) > 1]
        without = found.without([b"nowhere", b'"name":"a"'])
        assert [(file.name, file.rows) for file in without] == [(file.name, file.rows) for file in others]
        assert [it for block in found.summaries() for it in block] == [*map(summary_of, files)]
        assert [found[number].name for number in range(len(files))] == [file.name for file in files]
        for file in files:
            same = found.find(file.name)
            assert same is not None
            assert same.rows == file.rows
        totals = index.totals
        assert totals.bytes == sum(file.bytes for file in files)
        assert totals.stored_bytes == sum(file.stored_bytes for file in files)
        verdicts = [str(file.verdict) for file in files]
        assert totals.verdicts == {verdict: verdicts.count(verdict) for verdict in verdicts}
        assert totals.losses.get("full", [0, 0])[0] == sum(isinstance(it, LossRow) for it in written)
        unreadable = [row for row in read_rows(lines) if isinstance(row, UnreadableRow)]
        assert totals.unreadable_lines == [row.line for row in unreadable if not row.torn]
        assert totals.torn == any(row.torn for row in unreadable)

    def test_names_with_equal_hashes_are_different_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dumpstream.reading.indexbuilder._signed", lambda _: 7)
        (tmp_path / "j").write_bytes(line("a") + line("b") + line("a", Verdict.SHORT) + line("c"))

        found = FileList(opened(tmp_path / "j"))

        assert [(file.name, len(file.rows)) for file in found] == [("a", 2), ("b", 1), ("c", 1)]
        assert [file.name for file in map(found.find, "abc") if file] == ["a", "b", "c"]
        assert found.find("d") is None

    @pytest.mark.parametrize(
        ("pattern", "prefix", "expected"),
        [
            ("*Mat*", "", ["x/MatMul.1", "MatMul"]),
            ("MatMul", "", ["MatMul"]),
            ("x/*", "", ["x/MatMul.1", "x/Relu"]),
            ("*[rR]elu", "", ["x/Relu"]),
            ("?atMul", "", ["MatMul"]),
            ("*\u00e9*", "", ["\u00e9t\u00e9"]),
            ("rank-0/MatMul", "rank-0/", ["MatMul"]),
            ("rank-1/MatMul", "rank-0/", []),
            ("*rank-0*Relu", "rank-0/", ["x/Relu"]),
            ("*0/x/R*", "rank-0/", ["x/Relu"]),
            ("*", "", ["x/MatMul.1", "x/Relu", "MatMul", "\u00e9t\u00e9"]),
        ],
    )
    def test_pattern_finds_what_fnmatch_finds(
        self, tmp_path: Path, pattern: str, prefix: str, expected: list[str]
    ) -> None:
        (tmp_path / "j").write_bytes(b"".join(map(line, ["x/MatMul.1", "x/Relu", "MatMul", "\u00e9t\u00e9"])))

        found = FileList(opened(tmp_path / "j")).matching(pattern, prefix)

        assert [file.name for file in found] == expected


class TestKept:
    def test_unchanged_journal_is_not_read_again(self, cache: Path, path: Path) -> None:
        opened(path)
        before = inodes(cache)

        index = opened(path)

        assert (inodes(cache), names(index)) == (before, ["a", "b"])
        assert cache.stat().st_mode & 0o777 == 0o700

    def test_journal_that_has_grown_is_read_from_where_it_ended(
        self, cache: Path, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened(path)
        append(path, line("c") + line("b", Verdict.GAP))
        read: list[bytes] = []
        lines = JournalFile.lines

        def noting(journal: JournalFile, block: bytes, key: bytes) -> Iterator[JournalLine]:
            read.append(block)
            return lines(journal, block, key)

        monkeypatch.setattr(JournalFile, "lines", noting)

        index = opened(path)

        assert b"".join(read).count(b"\n") == 2
        assert names(index) == ["a", "b", "c"]
        assert index.totals.verdicts == {"short": 1, "gap": 1, "complete": 1}

    def test_journal_that_was_changed_in_place_is_read_again(self, cache: Path, path: Path) -> None:
        opened(path)
        path.write_bytes(path.read_bytes().replace(b'"name":"b"', b'"name":"z"'))
        append(path, line("c"))

        assert names(opened(path)) == ["a", "z", "c"]

    def test_line_that_was_unfinished_is_read_again(self, cache: Path, path: Path) -> None:
        whole = line("c")
        append(path, whole[:40])
        assert opened(path).totals.torn
        append(path, whole[40:])

        index = opened(path)

        assert (names(index), index.totals.torn) == (["a", "b", "c"], False)

    @pytest.mark.parametrize("damage", [b"", b"not a database" * 400, None])
    def test_damaged_index_is_made_again(self, cache: Path, path: Path, damage: bytes | None) -> None:
        opened(path)
        (kept,) = cache.iterdir()
        if damage is None:
            with sqlite3.connect(kept) as connection:
                connection.execute("DROP TABLE about")
        else:
            kept.write_bytes(damage)

        assert names(opened(path)) == ["a", "b"]
        assert names(opened(path)) == ["a", "b"]

    @pytest.mark.parametrize("statement", ["DROP TABLE repeated", "UPDATE repeated SET offset = offset + 1"])
    def test_damage_that_is_found_later_is_one_error_and_then_gone(
        self, cache: Path, path: Path, statement: str
    ) -> None:
        opened(path)
        (kept,) = cache.iterdir()
        with sqlite3.connect(kept) as connection:
            connection.execute(statement)

        with pytest.raises(DumpstreamError, match=r"index .* was damaged; run the command again"):
            FileList(opened(path)).matching("*").__next__()

        assert names(opened(path)) == ["a", "b"]

    def test_damaged_index_that_cannot_be_extended_is_removed(self, cache: Path, path: Path) -> None:
        opened(path)
        (kept,) = cache.iterdir()
        with sqlite3.connect(kept) as connection:
            connection.execute("DROP TABLE repeated")
        append(path, line("c") + line("c"))

        assert names(opened(path)) == ["a", "b", "c"]

        assert not kept.exists()

    def test_totals_of_a_wrong_type_are_made_again(self, cache: Path, path: Path) -> None:
        opened(path)
        (kept,) = cache.iterdir()
        with sqlite3.connect(kept) as connection:
            connection.execute("""UPDATE about SET value = json_set(value, '$.totals.outcomes', 7)""")

        assert names(opened(path)) == ["a", "b"]

    def test_index_of_another_journal_at_the_same_path_is_not_used(self, cache: Path, path: Path) -> None:
        opened(path)
        path.unlink()
        path.write_bytes(line("other"))

        assert names(opened(path)) == ["other"]

    def test_cache_that_others_may_write_to_is_not_used(self, cache: Path, path: Path) -> None:
        opened(path)
        (kept,) = cache.iterdir()
        kept.write_bytes(b"forged")
        cache.chmod(0o777)

        assert names(opened(path)) == ["a", "b"]
        assert kept.read_bytes() == b"forged"

    def test_cache_that_is_a_link_is_not_used(self, cache: Path, path: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        cache.parent.mkdir()
        cache.symlink_to(tmp_path / "elsewhere")

        assert names(opened(path)) == ["a", "b"]
        assert [*(tmp_path / "elsewhere").iterdir()] == []

    def test_home_that_does_not_exist_is_not_made(
        self, cache: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "none"))

        assert names(opened(path)) == ["a", "b"]
        assert not (tmp_path / "none").exists()

    def test_reader_keeps_the_index_that_it_opened(self, cache: Path, path: Path) -> None:
        index = opened(path)
        append(path, line("c"))
        assert names(opened(path)) == ["a", "b", "c"]
        for kept in cache.iterdir():
            kept.unlink()

        assert names(index) == ["a", "b"]

    def test_no_draft_is_left(self, cache: Path, path: Path) -> None:
        opened(path)
        append(path, line("c"))
        opened(path)

        assert [it.suffix for it in cache.iterdir()] == [".sqlite"]

    def test_without_space_the_error_says_what_to_do(
        self, cache: Path, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(sqlite3, "connect", refuse)

        with pytest.raises(DumpstreamError, match=r"cannot be indexed .*disk is full.* set XDG_CACHE_HOME"):
            opened(path)
