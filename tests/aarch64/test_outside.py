"""A capture from outside: the agent in emulated processes, and a collector that reads their rings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.aarch64.conftest import Machine, Machines

pytestmark = pytest.mark.aarch64


def capture_job(machine: Machine, name: str, *job: str, code: int = 0) -> None:
    machine.dumpstream(
        *("capture", "--out", name, "--", machine.program, "simulate", "--config", "acl.json", *job),
        code=code,
    )


def finished_files(machine: Machine, name: str) -> set[tuple[Any, ...]]:
    """Return the name, length and hash of every file that the journals of all processes call complete."""
    rows = [
        json.loads(line)
        for journal in (machine.directory / name).glob("*/journal.jsonl")
        for line in journal.read_text().splitlines()
    ]
    files = (row for row in rows if row["type"] == "file" and row["verdict"] == "complete")
    return {(row["name"], row["bytes"], *(part["xxh3"] for part in row["stored"])) for row in files}


def test_processes_are_captured_as_on_the_other_machine(machines: Machines) -> None:
    for machine in machines:
        capture_job(machine, "job", "--ranks", "2", "--seed", "3")

    here, emulated = (finished_files(machine, "job") for machine in machines)
    assert len(here) == 32
    assert emulated == here
    assert "everything is whole" in machines.emulated.dumpstream("verify", "job")
    here_rows, emulated_rows = (machine.statistics("job") for machine in machines)
    assert emulated_rows == here_rows


def test_a_killed_process_leaves_what_it_had_dumped(machines: Machines) -> None:
    emulated = machines.emulated

    capture_job(emulated, "killed", "--steps", "4", "--crash-at", "2", code=137)

    assert len(finished_files(emulated, "killed")) >= 32, "two steps of sixteen files had ended before"
