"""What goes wrong in the capture of one process, and the others that are captured beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.conftest import LIMIT_S

if TYPE_CHECKING:
    from tests.outside.conftest import Outside


def losses(outside: Outside, directory: str) -> set[str]:
    return {loss.cause for loss in outside.stored(directory).losses}


def has_ended(outside: Outside, rank: int) -> bool:
    return any(process.rank == rank and process.ended for process in outside.processes())


def test_a_sink_that_fails_for_one_process_fails_for_no_other(outside: Outside) -> None:
    elsewhere, fifo = outside.directory / "elsewhere", outside.directory / "fifo"
    elsewhere.mkdir()
    (elsewhere / "rank-1").write_text("in the place of a directory")
    os.mkfifo(fifo)
    job = " ".join(outside.job)
    waiting = job.replace("init", "init wait", 1)

    process = outside.start_capture(
        ["sh", "-c", f"RANK=0 {waiting} <{fifo} & RANK=1 {job}; wait"], "--sink", f"zstd:{elsewhere}"
    )
    with fifo.open("w"):
        outside.until(lambda: has_ended(outside, 1))
    process.communicate(timeout=LIMIT_S)

    assert process.returncode == 3
    assert "sink_failed" in losses(outside, "rank-1")
    assert [str(file.verdict) for file in outside.stored("rank-0").files] == ["complete"] * 16
    assert losses(outside, "rank-0") == set()


def test_a_full_ring_costs_no_other_process_a_chunk(outside: Outside) -> None:
    job = " ".join(outside.job)
    large = job.replace("run=2", "large=1")  # chunks that no ring has space for at once

    result = outside.capture(
        ["sh", "-c", f"RANK=0 {large} & RANK=1 {job}; wait"], "--on-full", "drop", "--buffer-bytes", "16M"
    )

    assert result.returncode == 3
    assert "ring_full" in losses(outside, "rank-0")
    assert [str(file.verdict) for file in outside.stored("rank-1").files] == ["complete"] * 16
    assert losses(outside, "rank-1") == set()
