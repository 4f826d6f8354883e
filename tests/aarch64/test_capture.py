"""A capture in the process that dumps, and every way to read it, on both machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aarch64.conftest import Machines

pytestmark = pytest.mark.aarch64

# The first run has NaNs and statistics text. The second has files that are cut off, resent, shuffled or
# without their last chunk, and therefore ends with 3.
_WHOLE = "demo,seed=7,steps=4,ops=8,single_ops=2,tensor_bytes=64-60000"
_FAULTY = "faults,seed=7"
_SINKS = ("--sink", "zstd:", "--sink", "stats:?histogram=on")


@pytest.fixture(scope="module")
def captured(machines: Machines) -> Machines:
    """Return both machines, which have captured the same two runs."""
    common = ("capture", "--config", "acl.json", *_SINKS)
    machines.dumpstream(*common, "--out", "whole", "--simulate", _WHOLE)
    machines.dumpstream(*common, "--out", "faulty", "--simulate", _FAULTY, code=3)
    return machines


def tree(directory: Path) -> dict[str, bytes]:
    return {str(it.relative_to(directory)): it.read_bytes() for it in directory.rglob("*") if it.is_file()}


def file_rows(capture: Path) -> list[Any]:
    """Return what the journal says of each file, except where: packs and tables have random names."""
    rows = [json.loads(line) for line in (capture / "journal.jsonl").read_text().splitlines()]
    for row in rows:
        row["stored"] = [part for part in row.get("stored", ()) if part["sink"] != "stats"]
        for part in row["stored"]:
            if part["path"].startswith("packs/"):
                del part["path"], part["start"]
    return sorted((row for row in rows if row["type"] == "file"), key=lambda row: str(row["name"]))


@pytest.mark.parametrize("name", ["whole", "faulty"])
def test_stored_files_and_their_verdicts_are_the_same(captured: Machines, name: str) -> None:
    here, emulated = (machine.directory / name for machine in captured)

    assert len(tree(here / "files")) > 10
    assert tree(emulated / "files") == tree(here / "files")
    assert file_rows(emulated) == file_rows(here)


@pytest.mark.parametrize(("name", "code"), [("whole", 0), ("faulty", 3)])
def test_verify_says_the_same(captured: Machines, name: str, code: int) -> None:
    here, emulated = (
        sorted(printed.splitlines()) for printed in captured.dumpstream("verify", name, code=code)
    )

    assert emulated == here


def test_extracted_files_are_the_same(captured: Machines) -> None:
    captured.dumpstream("extract", "whole", "--out", "extracted")
    here, emulated = (tree(machine.directory / "extracted") for machine in captured)

    assert len(here) > 50
    assert emulated == here


def test_statistics_of_the_sink_are_the_same(captured: Machines) -> None:
    here, emulated = (machine.statistics("whole", "--histogram") for machine in captured)

    assert len(here) > 100
    assert emulated == here


def test_computed_statistics_and_their_text_are_the_same(captured: Machines) -> None:
    captured.dumpstream("extract", "whole", "--out", "dumps")
    here, emulated = captured.dumpstream("stats", "dumps", "--format", "csv")

    assert len(here.splitlines()) > 100
    assert emulated == here


def test_converted_tensors_are_the_same(captured: Machines) -> None:
    captured.dumpstream("convert", "whole", "--out", "npy")
    here, emulated = (tree(machine.directory / "npy") for machine in captured)

    assert len(here) > 100
    assert emulated == here


def test_show_prints_the_same(captured: Machines) -> None:
    here, emulated = captured.dumpstream("show", "whole", "*transformer_0/1/3/GatherV2.layer_5_*")

    assert "nan" in here.lower()
    assert emulated == here


def test_each_machine_reads_what_the_other_captured(captured: Machines) -> None:
    here, emulated = captured

    foreign, own = (machine.statistics(str(here.directory / "whole")) for machine in (emulated, here))

    assert foreign == own
    assert here.dumpstream("verify", str(emulated.directory / "whole")) == here.dumpstream("verify", "whole")
