"""What `force` deletes: what the capture made, wherever that is inside, and nothing else."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.conftest import CaptureBuilder, CollectionBuilder

from dumpstream._errors import DestinationError, DestinationInUseError
from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import MANIFEST
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.system import lock as lock_module
from dumpstream.system.lock import SHARED
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dumpstream.archive.remains import Remains

_NEW = {".lock", "manifest.json"}


def replace(path: Path) -> Remains:
    """Replace the capture in *path* by one without files."""
    destination = Destination.open(path, force=True)
    try:
        destination.begin_run({})
    finally:
        destination.close()
    return destination.remains


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir()}


def put(path: Path, *names: str) -> None:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"not of the capture")


def name_part(builder: CaptureBuilder, path: str) -> None:
    builder.write(FileRow("n", 1, 1, Verdict.UNPARSED, [StoredPart("zstd", path, 0, 1, 1, None)]).to_line())


@contextmanager
def sink_in(root: Path, base: Path) -> Iterator[Tree]:
    """Have a sink of another capture store a file below *root*."""
    tree = Tree(root, below=(), suffix=".zst", base=base, directories=4, durable=False)
    try:
        draft, fd = tree.create("name")
        os.close(fd)
        tree.publish(draft)
        yield tree
    finally:
        tree.close()


def test_files_that_the_journal_does_not_name_stay_and_are_told(builder: CaptureBuilder) -> None:
    builder.add("x/mine", b"data")
    path = builder.finish()
    others = {"files/x/other.zst", "files/y/z/other.zst", "packs/0123abcd-000001.zip", "stats/other.parquet"}
    put(path, *others)

    remains = replace(path)

    assert files(path) == _NEW | others
    assert remains.count == 4
    assert str(remains) == (
        "4 files are left that the deleted capture had not made, or not recorded: files/x/other.zst, "
        "files/y/z/other.zst, packs/0123abcd-000001.zip and 1 more; delete them if they are not needed"
    )


def test_what_unfinished_writes_left_is_deleted_with_directories_that_are_empty(
    builder: CaptureBuilder,
) -> None:
    builder.add("a/b/c", b"data")
    for series in ("packs/89abcdef-000001.zip", "stats/20261118T033001-0a1b2c-00001.parquet"):
        name_part(builder, series)
        put(builder.path, series, series.replace("00001.", "00002."))
    put(builder.path, "files/a/.0123.dumpstream-part", "files/empty/below/.45.dumpstream-part")

    remains = replace(builder.finish())

    assert {entry.name for entry in builder.path.iterdir()} == _NEW
    assert remains.count == 0


def test_a_row_that_names_a_directory_or_what_describes_a_capture_deletes_nothing(
    builder: CaptureBuilder,
) -> None:
    put(builder.path, "own/manifest.json", "notes/journal.jsonl", "kept/below/mine")
    for part in ("own/manifest.json", "notes/journal.jsonl", "kept/below", "kept", ".", "", "x" * 5000):
        name_part(builder, part)

    replace(builder.finish())

    assert files(builder.path) == _NEW | {"own/manifest.json", "notes/journal.jsonl", "kept/below/mine"}


def test_a_row_that_names_a_file_of_a_capture_inside_deletes_nothing(builder: CaptureBuilder) -> None:
    inner = CaptureBuilder(builder.path / "sub/inner")
    inner.add("a", b"data")
    inner.finish()
    name_part(builder, "sub/inner/files/a.zst")
    before = files(inner.path)

    remains = replace(builder.finish())

    assert files(inner.path) == before
    assert remains.first == ["sub/inner/files/a.zst"]


@pytest.mark.parametrize("inside", ["files/deep/inner", "packs", "stats/inner"])
def test_a_place_with_another_capture_inside_is_refused(builder: CaptureBuilder, inside: str) -> None:
    builder.add("a", b"data")
    path = builder.finish()
    inner = CaptureBuilder(path / inside)
    inner.add("b", b"data")
    inner.finish()
    before = files(path)

    with pytest.raises(DestinationError, match=f"another capture inside, in {inside}/; move it"):
        Destination.open(path, force=True)

    assert files(path) == before


def test_a_lock_inside_matters_while_it_is_held(builder: CaptureBuilder) -> None:
    path = builder.finish()
    put(path, "files/sub/.lock")
    with (path / "files/sub/.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DestinationError, match="another capture inside, in files/sub/"):
            Destination.open(path, force=True)

    assert replace(path).first == ["files/sub/.lock"]


def test_a_capture_that_begins_inside_meanwhile_is_left_alone(builder: CaptureBuilder) -> None:
    path = builder.finish()
    destination = Destination.open(path, force=True)
    inner = CaptureBuilder(path / "files/inner")
    put(inner.path, "files/.0123.dumpstream-part")

    destination.begin_run({})
    destination.close()

    assert destination.remains.first == ["files/inner/"]
    assert (inner.path / "files/.0123.dumpstream-part").exists()
    inner.finish()


def test_a_process_whose_capture_is_being_written_is_not_deleted(collection: CollectionBuilder) -> None:
    member = collection.begin(rank=0)
    member.add("a", b"data")
    collection.end(member)
    path = collection.close()
    writing = Destination.open(path / "rank-0", append=True)

    with pytest.raises(DestinationInUseError, match=f"rank-0 is being written by process {os.getpid()}"):
        Destination.open(path, force=True, of_processes=True)

    writing.close()
    destination = Destination.open(path, force=True, of_processes=True)
    destination.begin_processes()
    destination.close()
    assert files(path) == _NEW


@pytest.mark.parametrize("below", ["", "files", "files/of/another"])
def test_a_place_that_a_sink_of_another_capture_writes_to_is_refused(
    builder: CaptureBuilder, tmp_path: Path, below: str
) -> None:
    path = builder.finish()

    with (
        sink_in(path / below, tmp_path / "another"),
        pytest.raises(DestinationError, match="another capture's sink; wait for its end"),
    ):
        Destination.open(path, force=True)
    stored = files(path) - _NEW - {"journal.jsonl"}
    replace(path)

    assert files(path) == _NEW | stored
    assert len(stored - {SHARED}) == 1
    assert SHARED in stored  # a later repair leaves the file, too


def test_a_sink_of_another_capture_cannot_begin_during_a_deletion(
    builder: CaptureBuilder, tmp_path: Path
) -> None:
    destination = Destination.open(builder.finish(), force=True)

    with pytest.raises(OSError, match="is being deleted"), sink_in(builder.path / "sub", tmp_path):
        pass
    destination.begin_run({})
    with sink_in(builder.path / "sub", tmp_path):
        pass

    destination.close()


def test_a_capture_may_have_a_sink_in_itself(builder: CaptureBuilder) -> None:
    with sink_in(builder.path / "own", builder.path):
        replace(builder.finish())


def test_a_sink_ends_with_its_process_though_a_forked_child_lives(
    builder: CaptureBuilder, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from dumpstream.system.tree import Tree\n"
        "base, root = map(Path, sys.argv[1:])\n"
        "Tree(root, below=(), suffix='', base=base, directories=4, durable=False).create('name')\n"
        "if not os.fork():\n"
        "    print(os.getpid(), flush=True)\n"
        "signal.pause()"
    )
    path = builder.finish()
    command = [sys.executable, "-c", code, str(tmp_path), str(path / "sub")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with pytest.raises(DestinationError, match="sink"):
            Destination.open(path, force=True)
        process.kill()
    try:
        Destination.open(path, force=True).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_captures_are_known_by_the_names_that_they_have() -> None:
    assert MANIFEST in lock_module._MARKS


def test_a_deletion_that_fails_half_way_can_be_repeated(
    builder: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        builder.add(f"d{number}/a", b"data")
    path = builder.finish()
    unlink, calls = os.unlink, iter(range(5))

    def fail_later(name: str, *, dir_fd: int) -> None:
        if next(calls, None) is None:
            raise OSError(5, "Input/output error")
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail_later)
        with pytest.raises(DestinationError, match="Input/output"):
            replace(path)
    half_way = files(path)
    remains = replace(path)

    assert len(half_way) == 5 + len(_NEW) + 1
    assert "journal.jsonl" in half_way
    assert files(path) == _NEW
    assert remains.count == 0


def test_a_tree_deeper_than_any_path_is_swept(
    builder: CaptureBuilder, make_deep: Callable[[Path, str], None]
) -> None:
    builder.add("a", b"data")
    make_deep(builder.path / "files", ".0123.dumpstream-part")

    remains = replace(builder.finish())

    assert files(builder.path) == _NEW
    assert not (builder.path / "files").exists()
    assert remains.count == 0


def test_a_file_deeper_than_any_path_stays_and_is_told_in_short(
    builder: CaptureBuilder, make_deep: Callable[[Path, str], None]
) -> None:
    builder.add("a", b"data")
    make_deep(builder.path / "files", "mine")

    remains = replace(builder.finish())

    assert remains.count == 1
    assert str(remains).count("d/") == 97


def test_a_long_journal_takes_no_memory(builder: CaptureBuilder) -> None:
    lines = [
        FileRow(
            f"name{number}",
            1,
            1,
            Verdict.UNPARSED,
            [StoredPart("zstd", f"files/{number % 7}/{number}.zst", 0, 1, 1, None)],
        ).to_line()
        for number in range(100_000)
    ]
    builder.write("\n".join(lines))
    path = builder.finish()
    size = (path / "journal.jsonl").stat().st_size
    destination = Destination.open(path, force=True)

    tracemalloc.start()
    destination.begin_run({})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    destination.close()

    assert size > 12 << 20
    assert peak < 6 << 20
