"""Temporary directories, and processes that die without removing theirs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.system.scratch import ScratchDirectory, name_length, remove_abandoned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OWNER = """
import sys, time
from pathlib import Path
from dumpstream.system.scratch import ScratchDirectory
directory = ScratchDirectory("test", Path(sys.argv[1]))
(directory.path / "below").mkdir()
(directory.path / "below" / "file").write_text("data")
print(directory.path, flush=True)
sys.stdin.read()
"""


class Owner:
    """A process with a directory of its own in *parent*."""

    def __init__(self, parent: Path, code: str = _OWNER, descriptors: Sequence[int] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(parent)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
        )
        assert self.process.stdout is not None
        self.path = Path(self.process.stdout.readline().strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    yield owner
    owner.kill()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory whose path is short enough for a socket below it."""
    with TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


def renamed(path: Path, **changes: str) -> Path:
    """Give a directory the name of another process, or another start time."""
    _, kind, pid, start, token = path.name.split("-")
    parts = {"kind": kind, "pid": pid, "start": start, **changes}
    name = f"dumpstream-{parts['kind']}-{parts['pid']}-{parts['start']}-{token}"
    return path.rename(path.with_name(name))


def test_a_directory_is_private_named_after_its_owner_and_goes_with_the_block(tmp_path: Path) -> None:
    with ScratchDirectory("test", tmp_path) as directory:
        (directory.path / "file").write_text("data")

        assert re.fullmatch(rf"dumpstream-test-{os.getpid()}-\d+-[0-9a-f]{{8}}", directory.path.name)
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert len(directory.path.name) == name_length("test")

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_when_the_next_one_starts(owner: Owner, tmp_path: Path) -> None:
    owner.kill()
    assert (owner.path / "below" / "file").exists()

    with ScratchDirectory("test", tmp_path) as directory:
        assert list(tmp_path.iterdir()) == [directory.path]


def test_a_process_that_was_killed_and_not_waited_for_is_dead(owner: Owner, tmp_path: Path) -> None:
    owner.process.kill()
    os.waitid(os.P_PID, owner.process.pid, os.WEXITED | os.WNOWAIT)

    remove_abandoned(tmp_path)

    assert not owner.path.exists()


def test_the_directory_of_a_running_process_stays(owner: Owner, tmp_path: Path) -> None:
    with ScratchDirectory("test", tmp_path):
        assert (owner.path / "below" / "file").exists()


def test_a_number_that_another_process_has_got_does_not_keep_a_directory(
    owner: Owner, tmp_path: Path
) -> None:
    owner.kill()
    mine = renamed(owner.path, pid=str(os.getpid()))

    remove_abandoned(tmp_path)

    assert not mine.exists()


def test_an_owner_that_cannot_be_seen_from_here_keeps_its_directory(owner: Owner, tmp_path: Path) -> None:
    elsewhere = renamed(owner.path, start="1")  # as if its number meant another process here

    remove_abandoned(tmp_path)

    assert (elsewhere / "below" / "file").exists()


def test_a_forked_child_that_lives_on_keeps_the_directory(tmp_path: Path) -> None:
    until, end = os.pipe()
    fork = f"""
import os
if not os.fork():
    os.close({end})
    os.read({until}, 1)
    os._exit(0)
"""
    owner = Owner(tmp_path, _OWNER.replace("print(", f"{fork}print("), (until, end))
    owner.kill()

    remove_abandoned(tmp_path)

    assert (owner.path / "below" / "file").exists()
    os.close(end)
    os.close(until)


@pytest.mark.parametrize(
    "name", ["dumpstream-abcdefgh", "dumpstream-test-1-1-0123456", "dumpstream-profiling-0"]
)
def test_what_has_another_name_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()

    remove_abandoned(tmp_path)

    assert (tmp_path / name).exists()


def test_neither_links_nor_files_are_removed_or_followed(owner: Owner, tmp_path: Path) -> None:
    owner.kill()
    target = tmp_path / "target"
    owner.path.rename(target)
    owner.path.symlink_to(target)
    (tmp_path / renamed_file(owner.path)).write_text("a file")

    remove_abandoned(tmp_path)

    assert owner.path.is_symlink()
    assert (target / "below" / "file").exists()
    assert (tmp_path / renamed_file(owner.path)).exists()


def renamed_file(path: Path) -> str:
    return f"{path.name[:-8]}00000000"


def test_links_inside_are_removed_and_not_followed(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("data")
    (owner.path / "link").symlink_to(tmp_path / "kept")
    owner.kill()

    remove_abandoned(tmp_path)

    assert not owner.path.exists()
    assert (tmp_path / "kept" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_the_directory_of_another_user_stays(owner: Owner, tmp_path: Path) -> None:
    owner.kill()
    os.chown(owner.path, 12345, -1)

    remove_abandoned(tmp_path)

    assert owner.path.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "--steps", "100000"],
        ["capture", "--out", "out", "--simulate", "steps=100000"],
        ["capture", "--out", "out", "--", "cat"],
    ],
    ids=["simulate", "capture-simulate", "capture-command"],
)
def test_a_killed_program_leaves_what_the_next_one_removes(
    words: list[str], tmp_path: Path, temporary: Path
) -> None:
    variables = dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), str(temporary))
    command = [sys.executable, "-m", "dumpstream", *words]
    environment = {**os.environ, **variables}
    program = subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not list(temporary.glob("dumpstream-*-*/*")):
            assert program.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        program.kill()
        program.communicate(timeout=LIMIT_S)

    ScratchDirectory("test", temporary).close()

    assert list(temporary.iterdir()) == []
