"""`capture -- LAUNCHER`: a real launcher's processes are captured, each under the rank it was given."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.outside.conftest import Outside


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (openmpi-bin)")
def test_ranks_of_mpirun_are_captured_under_its_numbers(outside: Outside) -> None:
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3"]

    result = outside.capture([*launcher, *outside.job])

    processes = outside.processes()
    assert result.returncode == 0
    assert [(process.directory, process.rank) for process in processes] == [
        ("rank-0", 0),
        ("rank-1", 1),
        ("rank-2", 2),
    ]
    assert outside.verdicts() == ["complete"] * 48
    assert not outside.problems()
