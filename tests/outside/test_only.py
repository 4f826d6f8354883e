"""Captures from outside that store only some files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.outside.test_deaths import Abandoned, recover

from dumpstream import Chunk, Loss
from dumpstream._native import SharedRing
from dumpstream.archive.place import DirectoryPlace
from dumpstream.outside.recovery import RecoveredSource, _stored_files

if TYPE_CHECKING:
    from tests.conftest import CaptureBuilder
    from tests.outside.conftest import Outside


def stored_names(outside: Outside, directory: str) -> list[str]:
    return [file.name for file in outside.stored(directory).files if file.not_stored is None]


def test_patterns_are_of_names_as_ls_shows_them(outside: Outside) -> None:
    job = (*outside.dumpstream, "simulate", "--ranks", "2", "--workload", "models=1,ops=4")

    result = outside.capture(job, "--only", "rank-1/*Relu*", "--only", "*MatMul*")

    assert result.returncode == 0, result.stderr
    assert [len(stored_names(outside, f"rank-{rank}")) for rank in range(2)] == [1, 2]
    assert "rank-0: process" in result.stderr
    assert "3 files not stored: filtered" in result.stderr
    assert "5 files not stored: filtered\n" in result.stderr
    assert outside.problems() == set()


def test_recovery_stores_the_files_that_the_dead_collector_would_have_stored(outside: Outside) -> None:
    abandoned = Abandoned(outside, "--only", "rank-0/*MatMul*", rate="40M")
    abandoned.kill()
    abandoned.job.kill()
    abandoned.job.communicate()

    assert recover(outside).returncode in (0, 3)

    first, second = abandoned.runs()
    assert first.options["only"] == second.options["only"] == ["rank-0/*MatMul*"]
    files = [file for file in outside.stored("rank-0").files if file.verdict.whole]
    assert {"MatMul" in file.name for file in files if file.not_stored is None} == {True}
    assert {"MatMul" in file.name for file in files if file.not_stored} == {False}


def test_a_file_that_was_not_stored_is_not_recovered_again(builder: CaptureBuilder) -> None:
    builder.write(
        '{"type":"file","name":"a","bytes":3,"chunks":1,"verdict":"unparsed","stored":[],'
        '"not_stored":"filtered"}'
    )
    source = RecoveredSource(SharedRing(1 << 20), _stored_files(DirectoryPlace(builder.path)))

    losses: list[Loss] = []
    assert source._is_repeated(Chunk("a", b"abc", is_last=True), losses)
    assert not source._is_repeated(Chunk("a", b"abcd", is_last=True), losses)
    assert [loss.name for loss in losses] == ["a"]
