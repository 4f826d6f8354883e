"""What goes wrong in the capture of one process, and the others that are captured beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.outside.conftest import Outside


def losses(outside: Outside, directory: str) -> set[str]:
    return {loss.cause for loss in outside.stored(directory).losses}


def test_a_sink_that_fails_for_one_process_fails_for_no_other(outside: Outside) -> None:
    elsewhere = outside.directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "rank-1").write_text("in the place of a directory")

    result = outside.capture(outside.ranks(3), "--sink", f"zstd:{elsewhere}")

    assert result.returncode == 3
    assert "sink_failed" in losses(outside, "rank-1")
    for directory in ("rank-0", "rank-2"):
        assert [str(file.verdict) for file in outside.stored(directory).files] == ["complete"] * 16
        assert losses(outside, directory) == set()


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
