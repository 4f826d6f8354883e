"""The libraries that can profile."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_library_that_cannot_profile_is_refused_with_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "int acldumpRegCallback(void *callback, int flag) { return !callback + flag; }"
    path = tmp_path / "libdumponly.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    code = f"from dumpstream.acl.library import load_profiling; load_profiling({str(path)!r})"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    message = result.stderr.splitlines()[-1]
    assert "ProfilingError: no library can profile; tried" in message
    assert f"{path} (has no aclprofInit)" in message
    assert "libmsprofiler.so" in message
    assert "Source the set_env.sh" in message


def test_the_profiler_of_the_installation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lib64"
    folder.mkdir()
    for name, function in (("libascend_dump.so", "acldumpRegCallback"), ("libmsprofiler.so", "aclprofInit")):
        source = f"int {function}(void) {{ return 0; }}"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)]
        subprocess.run(command, input=source, text=True, check=True)
    code = (
        "from dumpstream.acl.library import load_profiling; acl = load_profiling()\n"
        "acl.call('aclprofInit'); print(acl.paths[-1])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"ASCEND_HOME_PATH": str(tmp_path)},
    )

    assert result.stdout == f"{folder / 'libmsprofiler.so'}\n"
