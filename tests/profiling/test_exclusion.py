"""One process profiles at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dumpstream import AclError, Profiler, ProfilingError, ProfilingInUseError

from .conftest import LIBRARY

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream.acl.library import Acl


def test_a_second_profiler_of_the_process_is_refused(profiler: Profiler, acl: Acl, place: Path) -> None:
    other = Profiler(acl)
    profiler.init(place)

    with pytest.raises(ProfilingInUseError, match="this process is profiling") as raised:
        other.init(place)
    profiler.finalize()
    other.init(place)
    other.finalize()

    assert raised.value.pid == os.getpid()


def test_another_process_is_named_until_it_has_finalized(profiler: Profiler, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from dumpstream import Profiler; from dumpstream.acl import load_profiling\n"
        f"profiler = Profiler(load_profiling({str(LIBRARY)!r}))\n"
        f"profiler.init(pathlib.Path({str(tmp_path / 'theirs')!r}))\n"
        "print('begun', flush=True); sys.stdin.read(); profiler.finalize()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "begun\n"

        with pytest.raises(ProfilingInUseError, match=f"process {other.pid} is profiling") as raised:
            profiler.init(tmp_path / "ours")
        other.stdin.close()
        assert other.wait(20) == 0

    assert raised.value.pid == other.pid
    profiler.init(tmp_path / "ours")


def test_a_refused_init_does_not_keep_the_turn(profiler: Profiler, acl: Acl, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(AclError, match="100003"):
        profiler.init(tmp_path / "file")

    other = Profiler(acl)
    other.init(tmp_path / "profile")
    other.finalize()


def test_a_lock_that_was_planted_is_refused(profiler: Profiler, tmp_path: Path, place: Path) -> None:
    (tmp_path / f"dumpstream-profiling-{os.getuid()}").symlink_to(tmp_path)

    with pytest.raises(ProfilingError, match="remove what is there or set TMPDIR"):
        profiler.init(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_lock_of_another_user_is_refused(profiler: Profiler, tmp_path: Path, place: Path) -> None:
    lock = tmp_path / f"dumpstream-profiling-{os.getuid()}"
    lock.mkdir()
    os.chown(lock, 12345, 12345)

    with pytest.raises(ProfilingError, match="belongs to another user"):
        profiler.init(place)
