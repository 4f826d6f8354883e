"""Steps that a program marks while it is captured from outside, from Python and from C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dumpstream import StoredCapture, parse_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.conftest import Outside

_PROGRAM = """
import sys
import dumpstream
from dumpstream.simulation import SimulatedRuntime, Workload

dumpstream.step(1)  # not captured yet
with SimulatedRuntime(Workload(models=1, ops=2, single_ops=2)) as runtime:
    for number in (7, 8):
        dumpstream.step(number)
        runtime.run(1)
"""


def steps_of(capture: Path) -> list[tuple[int | None, int | None]]:
    """Return the step in the name, and the marked one, of every row in order."""
    rows = StoredCapture.open(capture).files.rows()
    return [(parse_name(row.name).iteration, row.step) for row in rows]


def test_python_marks_steps_and_names_win(outside: Outside) -> None:
    command = outside.python(_PROGRAM)

    job = outside.start(
        *outside.dumpstream, "capture", "--out", outside.out, "--config", outside.config, "--", *command
    )

    assert job.wait(60) == 0, job.communicate()
    (process,) = outside.out.glob("pid-*")
    found = steps_of(process)
    assert {marked for named, marked in found if named is not None} == {None}
    # What the runtime has queued when the step is marked belongs to the next one.
    assert {marked for named, marked in found if named is None} - {8} <= {7}
    assert {named for named, _ in found} > {None}


def test_c_marks_steps(outside: Outside) -> None:
    words = ["init", "register", "eager=1", "step=-1", "step=3", "eager=1", "step=4", "eager=1", "finalize"]

    job = outside.start(
        *outside.dumpstream,
        *("capture", "--out", outside.out, "--config", outside.config, "--", outside.programs.linked, *words),
    )
    stdout, stderr = job.communicate(timeout=60)

    assert job.returncode == 0, stderr
    assert [line for line in stdout.splitlines() if line.startswith("step")] == [
        "step -22",
        "step 0",
        "step 0",
    ]
    (process,) = outside.out.glob("pid-*")
    marked = [step for named, step in steps_of(process) if named is None]
    assert marked == sorted(marked, key=lambda step: step or 0)
    assert set(marked) == {None, 3, 4}


def test_a_program_that_is_not_captured_runs_the_same(outside: Outside) -> None:
    job = outside.start(*outside.python(_PROGRAM))

    assert job.wait(60) == 0, job.communicate()
