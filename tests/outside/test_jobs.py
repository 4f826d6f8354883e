"""A job of several hosts: a collector on each writes to its own directory of one place."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import LIMIT_S

from dumpstream.reading.collection import Collection
from dumpstream.reading.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.outside.conftest import Outside


def start_host(
    outside: Outside, host: str, *flags: object, ranks: int = 1, command: list[str] | None = None, **env: str
) -> subprocess.Popen[str]:
    """Start to capture *ranks* processes on the host that the launcher calls *host*."""
    environment = {"SLURM_NODEID": host, **env}
    return outside.start_capture(command or outside.ranks(ranks), "--host", "auto", *flags, env=environment)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, errors


def listed(outside: Outside, *flags: object) -> Any:
    shown = subprocess.run(
        [*outside.dumpstream, "ls", str(outside.out), *map(str, flags), "--json"],
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return json.loads(shown.stdout)


@contextmanager
def waiting(outside: Outside) -> Iterator[list[str]]:
    """Have a job that goes on, once it has dumped, until the block is left."""
    pipe = outside.directory / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    words = [str(outside.programs.linked), "init", f"drive={outside.config}", "run=2", "wait", "finalize"]
    try:
        yield ["sh", "-c", f"exec {' '.join(words)} < {pipe}"]
    finally:
        os.close(held)


def joined(outside: Outside, host: str) -> bool:
    path: Path = outside.out / host / "manifest.json"
    return path.exists() and bool(json.loads(path.read_text())["processes"])


def test_hosts_capture_side_by_side_into_one_job(outside: Outside) -> None:
    hosts = [start_host(outside, host, ranks=2) for host in ("0", "1", "2")]

    assert [ended(host)[0] for host in hosts] == [0, 0, 0]

    job = listed(outside)
    assert [(it["host"], it["state"]) for it in job["hosts"]] == [(host, "finished") for host in "012"]
    processes = [process for it in job["hosts"] for process in it["processes"]]
    assert [it["rank"] for it in processes] == [0, 1] * 3
    assert [(it["files"], it["verdicts"], it["lost_chunks"]) for it in processes] == [
        (16, {"complete": 16}, 0)
    ] * 6
    assert verify(Collection.open(outside.out)).whole


def test_what_the_list_counts_is_what_the_journals_have(outside: Outside) -> None:
    assert ended(start_host(outside, "0", ranks=2))[0] == 0

    collection = Collection.open(outside.out)

    for process, member in zip(collection.processes or (), collection.members(), strict=True):
        assert member.capture is not None
        totals = member.capture.totals
        assert (process.files, process.bytes, process.stored_bytes, process.verdicts) == (
            totals.files,
            totals.bytes,
            totals.stored_bytes,
            totals.verdicts,
        )


def test_two_hosts_of_one_name_at_once_are_told_apart_by_an_error(outside: Outside) -> None:
    with waiting(outside) as command:
        first = start_host(outside, "0", command=command)
        outside.until(lambda: joined(outside, "0"))

        code, errors = ended(start_host(outside, "0"))

    assert ended(first)[0] == 0
    assert code == 1
    assert f"{outside.out}/0 is being written by process {first.pid}" in errors
    assert "give each its own name with --host" in errors


def test_a_host_that_comes_again_needs_append_and_another_one_does_not(outside: Outside) -> None:
    assert ended(start_host(outside, "0"))[0] == 0
    assert ended(start_host(outside, "1"))[0] == 0

    refused, errors = ended(start_host(outside, "0"))
    assert (refused, "--append" in errors) == (1, True)
    assert ended(start_host(outside, "0", "--append"))[0] == 0

    processes = {it["host"]: [p["directory"] for p in it["processes"]] for it in listed(outside)["hosts"]}
    assert processes == {"0": ["rank-0", "rank-0.2"], "1": ["rank-0"]}
    assert verify(Collection.open(outside.out)).whole


def test_force_deletes_only_its_own_host(outside: Outside) -> None:
    for host in ("0", "1"):
        assert ended(start_host(outside, host, ranks=2))[0] == 0
    before = {path: path.stat().st_ino for path in (outside.out / "1").rglob("*")}

    assert ended(start_host(outside, "0", "--force"))[0] == 0

    assert {path: path.stat().st_ino for path in (outside.out / "1").rglob("*")} == before
    assert [p["directory"] for p in listed(outside)["hosts"][0]["processes"]] == ["rank-0"]


def test_a_host_that_is_killed_leaves_the_others_whole_and_may_come_back(outside: Outside) -> None:
    assert ended(start_host(outside, "0"))[0] == 0
    with waiting(outside) as command:
        killed = start_host(outside, "1", command=command)
        outside.until(lambda: joined(outside, "1"))
        outside.until(lambda: any((outside.out / "1").glob("*/journal.jsonl")))
        killed.kill()
        killed.wait(LIMIT_S)

    during = {it["host"]: it["state"] for it in listed(outside)["hosts"]}
    problems = {(it.kind, it.subject) for it in verify(Collection.open(outside.out)).problems}
    assert ended(start_host(outside, "1", "--append"))[0] == 0
    assert ended(start_host(outside, "2"))[0] == 0  # a host that joins late

    assert during == {"0": "finished", "1": "interrupted"}
    assert {subject for _, subject in problems} == {str(next((outside.out / "1").glob("pid-*")))}
    assert {it["host"]: it["state"] for it in listed(outside)["hosts"]} == {
        "0": "finished",
        "1": "interrupted",
        "2": "finished",
    }


def test_a_running_host_is_seen_beside_finished_ones(outside: Outside) -> None:
    assert ended(start_host(outside, "0"))[0] == 0
    with waiting(outside) as command:
        running = start_host(outside, "1", command=command)
        outside.until(lambda: joined(outside, "1"))
        during = listed(outside)

    assert ended(running)[0] == 0
    assert during["state"] == "running"
    assert [it["state"] for it in during["hosts"]] == ["finished", "running"]


def test_sinks_with_a_place_of_their_own_have_a_directory_for_each_host(outside: Outside) -> None:
    tables = outside.directory / "tables"
    flags = ("--sink", "zstd:", "--sink", f"stats:{tables}")
    for host in ("0", "1"):
        assert ended(start_host(outside, host, *flags, ranks=2))[0] == 0

    assert sorted(it.name for it in tables.iterdir()) == ["0", "1"]
    assert sorted(it.name for it in (tables / "1").iterdir()) == ["rank-0", "rank-1"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--host", "."], "cannot be the name of a host"),
        (["--host", ""], "cannot be the name of a host"),
    ],
)
def test_a_bad_name_is_wrong_usage(outside: Outside, flags: list[str], message: str) -> None:
    code, errors = ended(outside.start_capture(outside.job, *flags))

    assert code == 2
    assert message in errors
    assert not outside.out.exists()


def test_a_capture_is_not_a_job_and_a_job_is_not_a_capture(outside: Outside) -> None:
    assert outside.capture(outside.job).returncode == 0
    code, errors = ended(start_host(outside, "0"))
    assert (code, "is itself a capture" in errors) == (1, True)

    outside.out = outside.directory / "job"
    assert ended(start_host(outside, "0"))[0] == 0
    refused = outside.capture(outside.job)
    assert (refused.returncode, "--host auto" in refused.stderr) == (1, True)
