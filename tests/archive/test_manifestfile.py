from __future__ import annotations

import os
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import make_process

from dumpstream.archive import manifestfile
from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import CHANGES, MANIFEST, Manifest, read_manifest
from dumpstream.archive.manifestfile import ManifestFile
from dumpstream.system.nofollow import open_regular

_OTHER_KEY = b'{"changes": "0"}\n'


@pytest.fixture(autouse=True)
def _every_manifest_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifestfile, "_LONG_BYTES", 0)


def new_manifest() -> Manifest:
    return Manifest(dumpstream="1", created="now")


def change(manifest: Manifest, action: str, pids: count[int]) -> None:
    if action == "begin" or not manifest.processes:
        manifest.processes.append(make_process(next(pids)))
    elif action == "end":
        manifest.processes[-1].ending = f"exit code {next(pids)}"
    else:
        manifest.processes.pop(0)


@given(st.lists(st.sampled_from(["begin", "end", "begin", "end", "forget"]), max_size=40))
def test_a_reader_finds_what_was_written_last(actions: list[str]) -> None:
    with TemporaryDirectory() as path:
        directory = os.open(path, os.O_RDONLY)
        manifest, pids = new_manifest(), count(1)
        with closing(ManifestFile(directory)) as file:
            file.write(manifest)
            for action in actions:
                change(manifest, action, pids)
                file.write(manifest)
                assert read_manifest(Path(path)).processes == manifest.processes
            file.write_all(manifest)
        os.close(directory)

        assert [it.name for it in Path(path).iterdir()] == [MANIFEST]
        assert read_manifest(Path(path)).processes == manifest.processes


@pytest.fixture
def long_one(tmp_path: Path) -> Path:
    """A manifest of 20 processes, and three changes."""
    destination = Destination.open(tmp_path / "run", of_processes=True)
    destination.begin_processes()
    with destination.gathering():
        for pid in range(1, 21):
            destination.begin_process(make_process(pid, command=["job", "x" * 500]))
    for process in destination.manifest.processes[:3]:
        destination.end_process(process, "exit code 0")
    destination.close()
    return tmp_path / "run"


def endings(path: Path) -> list[str | None]:
    return [process.ending for process in read_manifest(path).processes]


def test_a_change_costs_what_has_changed(long_one: Path) -> None:
    before = (long_one / MANIFEST).stat()

    destination = Destination.open(long_one, append=True, of_processes=True)
    destination.begin_processes()
    first = (long_one / MANIFEST).stat()
    sizes = []
    for process in destination.manifest.processes[3:6]:
        destination.end_process(process, "exit code 1")
        sizes.append((long_one / CHANGES).stat().st_size)
    destination.close()

    assert first.st_ino != before.st_ino  # what an earlier collector left is written in one piece
    assert (long_one / MANIFEST).stat().st_ino == first.st_ino
    assert all(0 < larger - size < 1000 for size, larger in pairwise(sizes))
    assert endings(long_one)[:7] == ["exit code 0"] * 3 + ["exit code 1"] * 3 + [None]


def test_changes_that_were_cut_off_are_read_up_to_there(long_one: Path) -> None:
    data = (long_one / CHANGES).read_bytes()

    for length in range(len(data)):
        (long_one / CHANGES).write_bytes(data[:length])
        whole = max(data[:length].count(b"\n") - 1, 0)
        assert endings(long_one) == ["exit code 0"] * whole + [None] * (20 - whole)


@pytest.mark.parametrize("content", [None, b"", _OTHER_KEY, "directory", "link"])
def test_changes_of_another_manifest_are_not_read(long_one: Path, content: bytes | str | None) -> None:
    changes = (long_one / CHANGES).read_bytes()
    (long_one / CHANGES).unlink()
    if isinstance(content, bytes):
        (long_one / CHANGES).write_bytes(content + changes.partition(b"\n")[2])
    elif content == "directory":
        (long_one / CHANGES).mkdir()
    elif content == "link":
        (long_one / "elsewhere").write_bytes(changes)
        (long_one / CHANGES).symlink_to("elsewhere")

    assert endings(long_one) == [None] * 20


@pytest.mark.parametrize("line", [b"[]", b"{}", b'{"number": 99}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_not_a_change_ends_the_changes(long_one: Path, line: bytes) -> None:
    title, *lines = (long_one / CHANGES).read_bytes().splitlines()
    (long_one / CHANGES).write_bytes(b"\n".join([title, lines[0], line, *lines[1:], b""]))

    assert endings(long_one) == ["exit code 0"] + [None] * 19


def test_a_manifest_that_is_replaced_while_it_is_read_is_read_again(
    long_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = Destination.open(long_one, append=True, of_processes=True)
    replaced = iter([destination.begin_processes])

    def read_meanwhile(path: Path, flags: int) -> int:
        if path.name == CHANGES:
            next(replaced, lambda: None)()
        return open_regular(path, flags)

    monkeypatch.setattr("dumpstream.archive.manifest.open_regular", read_meanwhile)

    assert endings(long_one)[:4] == ["exit code 0"] * 3 + [None]
    destination.close()


def test_after_a_change_that_could_not_be_written_everything_is(
    long_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = Destination.open(long_one, append=True, of_processes=True)
    destination.begin_processes()
    first, second = destination.manifest.processes[10:12]

    def fail(fd: int, data: bytes) -> int:
        os.write(fd, data[:10])
        raise OSError(5, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(manifestfile, "write_all", fail)
        with pytest.raises(Exception, match="broken"):
            destination.end_process(first, "exit code 1")
    destination.end_process(second, "exit code 2")
    destination.close()

    assert endings(long_one)[9:13] == [None, "exit code 1", "exit code 2", None]


def test_a_disk_that_is_full_for_changes_has_them_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, *_: object) -> None:
        raise OSError(28, "full", name)

    monkeypatch.setattr(manifestfile, "replace_file", fail)
    destination = Destination.open(tmp_path / "run", of_processes=True)
    destination.begin_processes()
    destination.begin_process(process := make_process(1))
    destination.end_process(process, "exit code 0")
    destination.close()

    assert endings(tmp_path / "run") == ["exit code 0"]


@pytest.mark.parametrize("force", [False, True])
def test_changes_go_with_the_manifest(long_one: Path, *, force: bool) -> None:
    destination = Destination.open(long_one, append=not force, force=force, of_processes=True)
    destination.begin_processes()
    destination.end_processes()
    destination.close()

    assert not (long_one / CHANGES).exists()
    assert len(endings(long_one)) == (0 if force else 20)
