from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import zstandard

from dumpstream._errors import NotACaptureError, PartError
from dumpstream.archive.manifest import MANIFEST
from dumpstream.archive.rows import JOURNAL, BeginRow, FileRow, LossRow, Outcome, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.reading.stored import State, StoredCapture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder


def read(capture: StoredCapture, part: StoredPart) -> bytes:
    return b"".join(bytes(block) for block in capture.read_part(part))


class TestFiles:
    def test_files_come_in_order_of_first_appearance(self, builder: CaptureBuilder) -> None:
        for name in ("b", "a", "c"):
            builder.add(name, b"data")

        capture = StoredCapture.open(builder.finish())

        assert [file.name for file in capture.files] == ["b", "a", "c"]

    def test_name_that_came_again_is_one_file_with_the_worst_verdict(self, builder: CaptureBuilder) -> None:
        first = builder.add("a", b"one", Verdict.COMPLETE)
        second = builder.store("files/a.2.zst", b"three")
        builder.write(FileRow("a", 5, 2, Verdict.SHORT, [second]).to_line())

        (file,) = StoredCapture.open(builder.finish()).files

        assert (file.bytes, file.chunks, file.verdict) == (8, 3, Verdict.SHORT)
        assert file.stored_bytes == first.stored_bytes + second.stored_bytes
        assert file.parts == (first, second)
        assert file.path == "files/a.zst"

    def test_part_in_several_sinks_counts_once_and_is_read_where_it_can_be(
        self, builder: CaptureBuilder
    ) -> None:
        readable = builder.store("files/a.zst", b"data")
        other = StoredPart("bucket", "a", 0, 4, 4, None)
        builder.write(FileRow("a", 4, 1, Verdict.UNPARSED, [other, readable, readable]).to_line())

        (file,) = StoredCapture.open(builder.finish()).files

        assert file.parts == (readable,)
        assert file.path == "files/a.zst"

    def test_lost_file_without_a_part_has_no_path(self, builder: CaptureBuilder) -> None:
        builder.write(FileRow("a", 0, 1, Verdict.LOST, [], cause="full", lost_bytes=9).to_line())

        (file,) = StoredCapture.open(builder.finish()).files

        assert (file.path, file.parts, file.cause) == (None, (), "full")

    def test_losses_without_a_name_add_up_by_cause(self, builder: CaptureBuilder) -> None:
        for line in (
            LossRow("full", 1, 10).to_line(),
            LossRow("bad", 1, 1).to_line(),
            LossRow("full", 2, 20).to_line(),
        ):
            builder.write(line)

        losses = StoredCapture.open(builder.finish()).losses

        assert losses == (("full", 3, 30), ("bad", 1, 1))


class TestState:
    def test_capture_that_ended_is_finished(self, builder: CaptureBuilder) -> None:
        capture = StoredCapture.open(builder.finish(Outcome.FAILED))

        assert capture.state is State.FINISHED
        assert capture.outcomes == {1: Outcome.FAILED}

    def test_capture_that_is_being_written_is_running(self, builder: CaptureBuilder) -> None:
        capture = StoredCapture.open(builder.path)

        assert capture.state is State.RUNNING
        assert capture.pid == os.getpid()
        assert not capture.interrupted

    def test_capture_whose_journal_has_no_end_is_interrupted(self, builder: CaptureBuilder) -> None:
        builder.write(FileRow("a", 0, 1, Verdict.LOST, []).to_line()[:20], end="")

        capture = StoredCapture.open(builder.interrupt())

        assert capture.state is State.INTERRUPTED
        assert capture.torn
        assert capture.unreadable_lines == []

    def test_later_run_does_not_hide_an_interrupted_one(self, builder: CaptureBuilder) -> None:
        builder.write(BeginRow(2, "then").to_line())

        capture = StoredCapture.open(builder.finish())

        assert capture.outcomes == {1: Outcome.FINISHED, 2: None}
        assert capture.state is State.INTERRUPTED

    def test_capture_killed_before_its_first_row_is_interrupted(self, builder: CaptureBuilder) -> None:
        (builder.path / JOURNAL).unlink()

        capture = StoredCapture.open(builder.interrupt())

        assert [*capture.files] == []
        assert capture.state is State.INTERRUPTED

    def test_directory_in_which_no_run_began_holds_no_capture(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text('{"format": 1, "dumpstream": "0.1.0", "created": "", "runs": []}')

        with pytest.raises(NotACaptureError, match="no run has begun there"):
            StoredCapture.open(tmp_path)

    def test_unreadable_lines_are_numbered(self, builder: CaptureBuilder) -> None:
        builder.write("garbage")

        capture = StoredCapture.open(builder.finish())

        assert capture.unreadable_lines == [2]


class TestWhatIsNoCapture:
    def test_every_kind_is_told_apart(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        for path, problem in (("none", "does not exist"), ("file", "is a file"), ("", "no manifest.json")):
            with pytest.raises(NotACaptureError, match=problem):
                StoredCapture.open(tmp_path / path)

    def test_linked_journal_is_not_followed(self, builder: CaptureBuilder, tmp_path: Path) -> None:
        path = builder.finish()
        (path / JOURNAL).rename(tmp_path / "elsewhere")
        (path / JOURNAL).symlink_to(tmp_path / "elsewhere")

        with pytest.raises(NotACaptureError, match="symbolic"):
            StoredCapture.open(path)


class TestReadingParts:
    @pytest.mark.parametrize("size", [0, 1, 1 << 20, (3 << 20) + 7])
    def test_part_gives_back_its_bytes(self, builder: CaptureBuilder, size: int) -> None:
        data = os.urandom(size)
        part = builder.add("a", data)

        assert read(StoredCapture.open(builder.finish()), part) == data

    def test_concatenated_frames_are_one_part(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"onetwo")
        frames = b"".join(zstandard.compress(piece) for piece in (b"one", b"", b"two"))
        (builder.path / "files/a.zst").write_bytes(frames)
        part = part._replace(stored_bytes=len(frames))

        assert read(StoredCapture.open(builder.finish()), part) == b"onetwo"

    def test_absolute_path_is_read_where_it_is(self, builder: CaptureBuilder, tmp_path: Path) -> None:
        part = builder.add("a", b"data")
        elsewhere = tmp_path / "a.zst"
        (builder.path / "files/a.zst").rename(elsewhere)

        assert read(StoredCapture.open(builder.finish()), part._replace(path=str(elsewhere))) == b"data"

    @pytest.mark.parametrize(
        "path", ["../outside.zst", "files/../../outside.zst", "files/link/outside.zst", "", "."]
    )
    def test_relative_path_never_leads_outside(self, builder: CaptureBuilder, path: str) -> None:
        part = builder.store("../outside.zst", b"data")
        (builder.path / "files").mkdir()
        (builder.path / "files/link").symlink_to(builder.path.parent)

        with pytest.raises(PartError):
            read(StoredCapture.open(builder.finish()), part._replace(path=path))

    def test_linked_part_is_not_followed(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")
        (builder.path / "files/a.zst").rename(builder.path / "files/b.zst")
        (builder.path / "files/a.zst").symlink_to("b.zst")

        with pytest.raises(PartError, match="symbolic"):
            read(StoredCapture.open(builder.finish()), part)

    def test_part_that_is_gone_is_missing(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")
        (builder.path / "files/a.zst").unlink()

        with pytest.raises(PartError, match="is missing") as caught:
            read(StoredCapture.open(builder.finish()), part)

        assert caught.value.missing

    def test_part_with_a_flipped_byte_is_damaged(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", os.urandom(1000))
        path = builder.path / "files/a.zst"
        stored = bytearray(path.read_bytes())
        stored[500] ^= 1
        path.write_bytes(stored)

        with pytest.raises(PartError, match="checksum"):
            read(StoredCapture.open(builder.finish()), part)

    @pytest.mark.parametrize("kept", [0, 1, 12, -1])
    def test_part_cut_short_is_damaged(self, builder: CaptureBuilder, kept: int) -> None:
        part = builder.add("a", os.urandom(1000))
        path = builder.path / "files/a.zst"
        path.write_bytes(path.read_bytes()[:kept])

        with pytest.raises(PartError, match="bytes instead of"):
            read(StoredCapture.open(builder.finish()), part)

    def test_part_that_is_no_zstd_is_damaged(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")
        (builder.path / "files/a.zst").write_bytes(b"x" * part.stored_bytes)

        with pytest.raises(PartError, match="is damaged"):
            read(StoredCapture.open(builder.finish()), part)

    def test_part_that_unfolds_to_more_than_it_should_is_stopped(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", bytes(100 << 20))
        small = part._replace(bytes=10)

        blocks = StoredCapture.open(builder.finish()).read_part(small)

        with pytest.raises(PartError, match="more than the 10 bytes"):
            next(blocks)

    def test_part_with_fewer_bytes_than_stored_is_damaged(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")

        with pytest.raises(PartError, match="fewer than the 5 bytes"):
            read(StoredCapture.open(builder.finish()), part._replace(bytes=5))

    def test_part_of_another_sink_cannot_be_read_back(self, builder: CaptureBuilder) -> None:
        capture = StoredCapture.open(builder.finish())

        with pytest.raises(PartError, match="bucket"):
            read(capture, StoredPart("bucket", "a", 0, 1, 1, None))
