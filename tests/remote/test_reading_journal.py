"""The journal of a capture in a store, while it grows and if the store changes it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.store import LocalStore

from dumpstream import StoredCapture
from dumpstream.archive.rows import JOURNAL, FileRow, MergedRow
from dumpstream.format.verdict import Verdict
from dumpstream.objectstore.reader import FIRST_BYTES
from dumpstream.reading.problem import Kind
from dumpstream.reading.stored import State
from dumpstream.reading.verification import verify
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder


def in_store(path: Path) -> Prefix:
    """Return the directory *path* as a place in a store."""
    return Prefix.of(LocalStore(path.parent), path.name)


def open_in_store(path: Path) -> StoredCapture:
    return StoredCapture.open(in_store(path))


class TestJournal:
    @pytest.fixture
    def segments(self, builder: CaptureBuilder) -> Path:
        """A directory for segments; what the builder writes is the merged journal."""
        path = builder.path / "journal"
        path.mkdir()
        return path

    def test_segments_are_read_up_to_the_first_that_is_missing(
        self, builder: CaptureBuilder, segments: Path
    ) -> None:
        (builder.path / JOURNAL).unlink()
        for number in (*range(1, 40), 41):
            (segments / f"{number:06}.jsonl").write_text(row(f"{number}"))

        capture = open_in_store(builder.interrupt())

        assert [file.name for file in capture.files] == [f"{number}" for number in range(1, 40)]
        assert capture.state is State.INTERRUPTED
        assert [problem.kind for problem in verify(capture).problems] == [Kind.INTERRUPTED]

    def test_segments_that_are_merged_are_not_read_again(
        self, builder: CaptureBuilder, segments: Path
    ) -> None:
        (builder.path / JOURNAL).write_text(MergedRow(2).to_line() + "\n" + row("1") + row("2"))
        for number in (1, 2, 3):  # a merge that was killed before it had deleted them
            (segments / f"{number:06}.jsonl").write_text(row(f"{number}"))

        capture = open_in_store(builder.interrupt())

        assert [(file.name, len(file.rows)) for file in capture.files] == [("1", 1), ("2", 1), ("3", 1)]

    def test_run_that_ends_in_between_is_read_from_the_beginning(
        self, builder: CaptureBuilder, segments: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (builder.path / JOURNAL).unlink()
        (segments / "000001.jsonl").write_text(row("1"))
        (segments / "000002.jsonl").write_text(row("2"))
        listing = obstore.list

        def list_and_merge(*arguments: Any, **options: Any) -> Any:
            found = [[*page] for page in listing(*arguments, **options)]
            if (segments / "000002.jsonl").exists():
                (builder.path / JOURNAL).write_text(MergedRow(2).to_line() + "\n" + row("1") + row("2"))
                (segments / "000001.jsonl").unlink()
                (segments / "000002.jsonl").unlink()
            return found

        monkeypatch.setattr(obstore, "list", list_and_merge)

        capture = open_in_store(builder.interrupt())

        assert [(file.name, len(file.rows)) for file in capture.files] == [("1", 1), ("2", 1)]

    def test_journal_that_is_replaced_while_it_is_read_is_read_again(
        self, builder: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = [row(f"{number:06}") for number in range(13_000)]
        journal = builder.path / JOURNAL
        journal.write_text(MergedRow(1).to_line() + "\n" + "".join(long))
        assert journal.stat().st_size > FIRST_BYTES
        get = obstore.get
        replaced: list[str] = []

        def get_and_merge(store: Any, path: str, *, options: Any = None) -> Any:
            found = get(store, path, options=options)
            if path.endswith(JOURNAL) and not replaced:
                replaced.append(path)
                journal.write_text(MergedRow(2).to_line() + "\n" + "".join([*long, row("last")]))
            return found

        monkeypatch.setattr(obstore, "get", get_and_merge)

        capture = open_in_store(builder.interrupt())

        assert len(capture.files) == len(long) + 1
        assert capture.unreadable_lines == []

    def test_fresh_lock_means_that_the_capture_runs(self, builder: CaptureBuilder) -> None:
        lock = builder.path / "lock.json"
        lock.write_text(json.dumps({"host": "node-7", "pid": 4711, "time": ""}))
        place = in_store(builder.interrupt())

        fresh = StoredCapture.open(place)
        os.utime(lock, (0, 0))
        stale = StoredCapture.open(place)

        assert (fresh.state, fresh.pid) == (State.RUNNING, 4711)
        assert [problem.detail for problem in verify(fresh).problems] == [
            "process 4711 on node-7 is still capturing; verify again when it ends"
        ]
        assert stale.state is State.INTERRUPTED

    @pytest.mark.parametrize("text", ["", "[]", '{"pid": []}', "\xff"])
    def test_lock_that_names_no_process_is_a_lock(self, builder: CaptureBuilder, text: str) -> None:
        (builder.path / "lock.json").write_text(text, encoding="latin-1")

        capture = open_in_store(builder.interrupt())

        assert (capture.state, capture.pid) == (State.RUNNING, 0)


def row(name: str) -> str:
    return FileRow(name, 4, 1, Verdict.UNPARSED, []).to_line() + "\n"
