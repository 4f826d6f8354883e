"""Targets and collectors that die, and what is left of their data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream._native import SharedRing
from dumpstream.archive.manifest import read_manifest
from dumpstream.archive.rows import JOURNAL, EndRow, FileRow, read_journal
from dumpstream.format.text import TEXT_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.conftest import Outside

    from dumpstream.archive.manifest import Run
    from dumpstream.reading.storedfile import StoredFile

_LONG = ("--steps", "100000", "--rate", "4M")


def pid_of_target(outside: Outside) -> int:
    """Return the process that is being captured."""
    outside.until(lambda: (outside.out / "manifest.json").exists() and outside.processes())
    return outside.processes()[0].pid


def ends(outside: Outside, directory: str) -> list[EndRow]:
    return [row for row in read_journal(outside.out / directory / JOURNAL) if isinstance(row, EndRow)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_what_a_killed_process_had_committed_is_stored_and_its_end_is_known(
    outside: Outside, number: signal.Signals
) -> None:
    process = outside.start_capture([*outside.simulated, *_LONG], env={"RANK": "0"})
    target = pid_of_target(outside)
    outside.until(lambda: outside.journal_lines() > 50)

    os.kill(target, number)
    _, errors = process.communicate(timeout=LIMIT_S)

    (record,) = outside.processes()
    assert process.returncode == 128 + number
    assert record.ending == f"killed by {number.name}"
    assert f"killed by {number.name}" in errors
    (end,) = ends(outside, "rank-0")
    assert end.outcome == "finished"
    assert end.report["chunks"] >= 50
    assert "died" in outside.problems() <= {"died", "verdict", "loss"}
    assert outside.verdicts().count("complete") >= 49


def texts(outside: Outside) -> list[StoredFile]:
    """Return the statistics text of the only process."""
    (process,) = outside.processes()
    return [file for file in outside.stored(process.directory).files if file.name.endswith(TEXT_SUFFIX)]


def test_statistics_text_that_was_open_when_its_process_was_killed_is_not_whole(outside: Outside) -> None:
    # On a busy machine the text may be idle for long before the crash, and what is queued then never comes.
    command = [*outside.simulated, "--workload", "demo,queue_bytes=1", "--crash-at", "2"]
    outside.capture(command, "--text-idle-timeout", LIMIT_S)

    assert {(str(file.verdict), file.cause) for file in texts(outside)} == {("never_closed", "process_gone")}
    assert "verdict" in outside.problems()


def test_statistics_text_of_a_process_that_ended_in_order_is_whole(outside: Outside) -> None:
    result = outside.capture([*outside.simulated, "--workload", "demo"])

    assert {(str(file.verdict), file.cause) for file in texts(outside)} == {("complete", None)}
    assert outside.problems() == set()
    assert result.returncode == 0


def test_statistics_text_that_is_open_when_the_collector_stops_is_not_whole(outside: Outside) -> None:
    socket = outside.directory / "socket"
    collector = outside.start(*outside.dumpstream, "collect", "--socket", socket, "--out", outside.out)
    outside.until(socket.exists)
    job = (*outside.simulated, "--workload", "demo", "--steps", "100000", "--rate", "20M")
    outside.start(*job, env=outside.joined(socket, RANK="0"))
    outside.until(lambda: outside.journal_lines() > 100)

    collector.send_signal(signal.SIGTERM)
    collector.communicate(timeout=LIMIT_S)

    verdicts = {(str(file.verdict), file.cause) for file in texts(outside)}
    assert ("never_closed", "process_running") in verdicts
    assert collector.returncode == 3


def test_a_rank_that_crashes_takes_no_other_with_it(outside: Outside) -> None:
    job, crashing = " ".join(outside.job), " ".join([*outside.job[:-2], "kill"])
    command = f"RANK=1 {crashing} & RANK=0 {job}; wait"

    result = outside.capture(["sh", "-c", command])

    healthy, crashed = outside.processes()
    assert (healthy.ending, crashed.ending) == ("exit code 0", "killed by SIGKILL")
    assert [str(file.verdict) for file in outside.stored("rank-0").files] == ["complete"] * 16
    assert result.returncode in (0, 3)


class Abandoned:
    """A job whose collector was killed in the middle, with its rings in files."""

    def __init__(self, outside: Outside, *flags: object, rate: str = "4M") -> None:
        self.outside = outside
        self.rings = outside.directory / "rings"
        self.socket = outside.directory / "socket"
        self.collector = outside.start(
            *outside.dumpstream,
            *("collect", "--socket", self.socket, "--out", outside.out, "--buffer-bytes", "32M"),
            *("--buffer-file", self.rings, "--block-timeout", "1", *flags),
        )
        outside.until(self.socket.exists)
        job = (*outside.simulated, "--steps", "100000", "--rate", rate)
        self.job = outside.start(*job, env=outside.joined(self.socket, RANK="0"))
        outside.until(lambda: outside.journal_lines() > 20 and self.runs()[0].config)

    def runs(self) -> list[Run]:
        return read_manifest(self.outside.out / "rank-0").runs

    def kill(self) -> None:
        self.collector.kill()
        self.collector.communicate()

    def unread_bytes(self) -> int:
        """Return how much of the job's dump is in its ring."""
        (path,) = self.rings.iterdir()
        ring = SharedRing.recover(str(path))
        try:
            return ring.statistics()[1]
        finally:
            ring.close()


def test_a_job_outlives_its_collector_and_says_that_it_delivers_no_more(outside: Outside) -> None:
    abandoned = Abandoned(outside, rate="40M")
    abandoned.kill()
    outside.until(abandoned.unread_bytes)

    abandoned.job.send_signal(signal.SIGINT)
    output, errors = abandoned.job.communicate(timeout=LIMIT_S)

    assert abandoned.job.returncode == 0
    assert "chunks to a callback" in output
    assert re.fullmatch(r"dumpstream: .*collector.*\n", errors)


def test_what_a_dead_collector_left_in_its_rings_is_recovered(outside: Outside) -> None:
    abandoned = Abandoned(outside, "--level", "19", rate="40M")
    abandoned.kill()
    abandoned.job.kill()
    abandoned.job.communicate()
    before = names(outside.out / "rank-0" / JOURNAL)

    result, again = recover(outside), recover(outside)

    rows = names(outside.out / "rank-0" / JOURNAL)
    (record,) = outside.processes()
    assert len(rows) > len(before)
    assert len(set(rows)) == len(rows)
    assert record.ending == "not known: its collector died first"
    assert record.ring is None
    assert not list(abandoned.rings.iterdir())
    assert [row.outcome for row in ends(outside, "rank-0")] == ["finished"]
    assert outside.problems() <= {"interrupted", "extra", "verdict", "loss"}
    first, second = abandoned.runs()
    assert first.configured == second.configured
    assert first.config == second.config is not None
    assert result.returncode in (0, 3)
    assert "recovered into" in result.stdout
    assert (again.returncode, again.stdout) == (0, "nothing was left to recover\n")


def test_a_ring_is_taken_from_a_job_that_runs_but_not_from_a_collector(outside: Outside) -> None:
    abandoned = Abandoned(outside)

    refused = recover(outside)
    abandoned.kill()
    recovered = recover(outside)

    assert refused.returncode == 1
    assert f"is being written by process {abandoned.collector.pid}" in refused.stderr
    assert recovered.returncode in (0, 3)
    assert abandoned.job.poll() is None
    abandoned.job.send_signal(signal.SIGINT)
    abandoned.job.communicate(timeout=LIMIT_S)
    assert abandoned.job.returncode == 0


def test_a_damaged_ring_is_named_and_kept(outside: Outside) -> None:
    abandoned = Abandoned(outside)
    abandoned.kill()
    abandoned.job.kill()
    abandoned.job.communicate()
    (ring,) = abandoned.rings.iterdir()
    ring.write_bytes(bytes(1 << 20))

    result = recover(outside)

    assert result.returncode == 3
    assert f"the ring's file {ring} cannot be read" in result.stdout
    assert ring.exists()


def recover(outside: Outside) -> subprocess.CompletedProcess[str]:
    process = outside.start(*outside.dumpstream, "recover", outside.out)
    output, errors = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def names(journal: Path) -> list[str]:
    return [row.name for row in read_journal(journal) if isinstance(row, FileRow)]


def verify_text(outside: Outside, path: Path) -> tuple[int, str]:
    process = outside.start(*outside.dumpstream, "verify", path)
    output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output


@pytest.mark.parametrize(
    ("end", "said"), [("kill", "killed by SIGKILL, without aclFinalize"), ("exit", "without aclFinalize")]
)
def test_a_process_that_was_gone_without_a_goodbye_is_told_by_summary_and_verify(
    outside: Outside, end: str, said: str
) -> None:
    job = " ".join([*outside.job[:-1], end])  # all that it dumps has come by then

    result = outside.capture(["sh", "-c", f"RANK=0 {job}; true"])

    assert outside.verdicts() == ["complete"] * 16
    assert result.returncode == 3
    assert "gone without aclFinalize" in result.stderr
    assert "1 process died: what had not been dumped by then is not there" in result.stderr
    assert "shows which files" not in result.stderr  # all that came are whole
    code, text = verify_text(outside, outside.out)
    assert code == 3
    assert re.search(rf"^died .*{said}; what it had not dumped by then is not there$", text, re.MULTILINE)
    code, text = verify_text(outside, outside.out / "rank-0")
    assert code == 3
    assert re.search(r"^died .*: its process was gone, without aclFinalize; ", text, re.MULTILINE)


def test_a_process_that_a_signal_killed_after_its_goodbye_died_and_one_that_failed_then_did_not(
    outside: Outside,
) -> None:
    job = " ".join(outside.job)

    killed = outside.capture(["sh", "-c", f"RANK=0 {job} kill; true"])
    verified = verify_text(outside, outside.out)
    failed = outside.capture(["sh", "-c", f"RANK=0 {job} fail; true"], "--force")

    assert (killed.returncode, failed.returncode) == (3, 0)
    assert verified[0] == 3
    assert re.search(r"^died .*: killed by SIGKILL; what it", verified[1], re.MULTILINE)
    assert verify_text(outside, outside.out)[0] == 0
