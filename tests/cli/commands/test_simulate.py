from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.cli import main
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "dumpstream", "simulate"]


def simulate(*arguments: str | Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def dumped(tmp_path: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (tmp_path / "dump").rglob("*") if path.is_file()}


def expected(workload: Workload, tmp_path: Path) -> dict[str, bytes]:
    return {os.path.normpath(file.name): file.data for file in workload.expected_files(tmp_path / "dump")}


def test_job_dumps_what_its_workload_says(tmp_path: Path, config: Path) -> None:
    done = simulate(
        "--config", config, "--workload", "ops=3", "--steps", "2", "--seed", "5", temporary=tmp_path
    )

    assert done.returncode == 0
    assert dumped(tmp_path) == expected(Workload(ops=3, steps=2, seed=5), tmp_path)
    assert done.stdout.startswith("2 steps, ")
    assert done.stdout.endswith(" ms per step, 12 files dumped: 12 chunks to the disk\n")


def test_every_rank_has_a_device_and_bytes_of_its_own(tmp_path: Path, config: Path) -> None:
    done = simulate("--config", config, "--ranks", "3", "--seed", "5", temporary=tmp_path)

    assert done.returncode == 0
    ranks = [Workload(seed=5).of_rank(rank) for rank in range(3)]
    assert dumped(tmp_path) == {
        name: data for workload in ranks for name, data in expected(workload, tmp_path).items()
    }
    assert sorted(line.partition(":")[0] for line in done.stdout.splitlines()) == [
        "rank 0",
        "rank 1",
        "rank 2",
    ]


def test_without_a_configuration_everything_is_dumped_and_nothing_is_left(tmp_path: Path) -> None:
    done = simulate("--ranks", "2", temporary=tmp_path)

    assert done.returncode == 0
    assert done.stdout.count("16 files dumped: 16 chunks to the disk") == 2
    assert list(tmp_path.iterdir()) == []


def test_without_a_dump_the_steps_run_all_the_same(tmp_path: Path) -> None:
    done = simulate("--no-dump", "--steps", "3", temporary=tmp_path)

    assert done.returncode == 0
    assert done.stdout.startswith("3 steps, ")
    assert done.stdout.endswith(" 0 files dumped\n")


def test_faults_are_those_of_the_workload(tmp_path: Path, config: Path) -> None:
    simulate("--config", config, "--fault", "header_only=1", "--fault", "nan=2@0", temporary=tmp_path)

    workload = Workload(header_only="1", nan="2@0")
    assert {file.fault for file in workload.expected_files(tmp_path / "dump")} == {None, "header_only", "nan"}
    assert dumped(tmp_path) == expected(workload, tmp_path)


def test_a_fault_may_be_that_of_one_rank(tmp_path: Path, config: Path) -> None:
    faults = ("--fault", "header_only=1", "--fault", "rank1:nan=2@0", "--fault", "rank1:header_only=3")

    done = simulate("--config", config, "--ranks", "2", *faults, temporary=tmp_path)

    assert done.returncode == 0
    job = Workload(header_only="1+rank1:3", nan="rank1:2@0")
    first, second = job.of_rank(0), job.of_rank(1)
    assert dumped(tmp_path) == expected(first, tmp_path) | expected(second, tmp_path)
    assert {file.fault for file in first.expected_files("/dump")} == {None, "header_only"}
    assert {file.fault for file in second.expected_files("/dump")} == {None, "header_only", "nan"}


@pytest.mark.parametrize(("way", "number"), [("kill", signal.SIGKILL), ("abort", signal.SIGABRT)])
def test_crash_really_kills_in_its_step(
    tmp_path: Path, config: Path, way: str, number: signal.Signals
) -> None:
    done = simulate(
        "--config", config, "--steps", "4", "--crash-at", "1", "--crash-by", way, temporary=tmp_path
    )

    assert done.returncode == -number
    assert done.stdout == ""
    workload = Workload(steps=4)
    later = {
        os.path.normpath(file.name)
        for step in (2, 3)
        for file in workload.expected_files(tmp_path / "dump", step)
    }
    assert not later & dumped(tmp_path).keys()


def test_of_several_ranks_the_last_crashes_and_the_others_go_on(tmp_path: Path, config: Path) -> None:
    done = simulate("--config", config, "--ranks", "3", "--steps", "3", "--crash-at", "1", temporary=tmp_path)

    assert done.returncode == 128 + signal.SIGKILL
    assert done.stdout.count(" 3 steps, ") == 2
    assert done.stderr == "dumpstream: rank 2 was killed by SIGKILL\n"
    for rank in (0, 1):
        workload = Workload(steps=3).of_rank(rank)
        assert expected(workload, tmp_path).items() <= dumped(tmp_path).items()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ranks", [[], ["--ranks", "2"]], ids=["alone", "ranks"])
def test_signal_ends_it_between_files(
    tmp_path: Path, config: Path, number: signal.Signals, ranks: list[str]
) -> None:
    forever = ["--config", str(config), "--steps", "1000000", "--rate", "1M"]
    with subprocess.Popen([*COMMAND, *forever, *ranks], stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + LIMIT_S
        while not dumped(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        output, _ = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert output.count(" of 1000000, then stopped, ") == (2 if ranks else 1)
    whole = {
        name: data
        for rank in range(2 if ranks else 1)
        for name, data in expected(Workload(steps=50).of_rank(rank), tmp_path).items()
    }
    files = dumped(tmp_path)
    assert files == {name: whole[name] for name in files}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "unheard-of"], "no workload 'unheard-of'"),
        (["--ranks", "0"], "--ranks 0: must be 1 to 1024"),
        (["--steps", "-1"], "--steps -1: must be 0 or more"),
        (["--seed", "-1"], "seed"),
        (["--fault", "nan"], "--fault nan: must be NAME=SELECTOR"),
        (["--fault", "unheard_of=1"], "--fault unheard_of=1: must be NAME=SELECTOR"),
        (["--fault", "nan=sometimes"], "nan"),
        (["--fault", "rank1:nan=3"], "--fault rank1:...: there are no ranks without --ranks"),
        (["--ranks", "2", "--fault", "rank2:nan=3"], "--fault rank2:...: the last rank is 1"),
        (["--ranks", "2", "--fault", "rank1:nan=often"], "nan=rank1:often: must be a share"),
        (["--ranks", "2", "--fault", "rank:nan=3"], "--fault rank:nan=3: must be NAME=SELECTOR"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["simulate", *arguments])

    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("dumpstream: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("ranks", [[], ["--ranks", "2"]], ids=["alone", "ranks"])
def test_refused_configuration_fails_with_what_the_runtime_says(tmp_path: Path, ranks: list[str]) -> None:
    (tmp_path / "bad.json").write_text("{")

    done = simulate("--config", tmp_path / "bad.json", *ranks, temporary=tmp_path)

    assert done.returncode == 1
    assert done.stderr.count("aclmdlSetDump") == done.stderr.count("\n") == (2 if ranks else 1)
