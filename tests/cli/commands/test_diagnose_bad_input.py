"""Runs that `diagnose` cannot answer for, or not fully: said plainly, and never a wrong culprit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dumpstream.cli import main
from dumpstream.simulation import Workload
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.capture import CaptureFixture

_FLOW = "flow=on,models=1,ops=6,steps=3,tensor_bytes=1024,dtypes=float32,op_types=MatMulV2+Relu"


def capture(path: Path, workload: str, *flags: str) -> Path:
    main(["capture", "--out", str(path), "--simulate", workload, "--quiet", *flags])
    return path


def diagnosed(capsys: CaptureFixture[str], path: Path, code: int = 3) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["diagnose", str(path), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: CaptureFixture[str], path: Path) -> str:
    """Return the one line of an error."""
    capsys.readouterr()
    assert main(["diagnose", str(path)]) == 1
    said = capsys.readouterr()
    assert not said.out
    return said.err


@pytest.mark.parametrize("mode", ["exception", "watch"])
def test_a_mode_in_which_operators_are_not_dumped_as_they_run(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.chdir(tmp_path)  # exception dumps go there

    said = refusal(capsys, capture(tmp_path / "run", mode))

    assert f"was captured in mode {mode}, in which operators are not dumped as they run" in said
    assert "config new --mode model" in said


def test_an_overflow_dump_is_diagnosed(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    found = diagnosed(capsys, capture(tmp_path / "run", "overflow"))

    assert (found["origins"][0]["op_name"], found["origins"][0]["step"]) == ("layer_8_MatMulV2", 1)


def test_statistics_text_of_the_device_has_no_hashes_and_addresses(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    found = diagnosed(capsys, capture(tmp_path / "run", f"{_FLOW},stats_text=1.0,nan=3@1"))

    assert {it["blame"] for it in found["origins"]} == {"unknown"}
    assert (
        "the device computed the statistics: they have no hashes and addresses; dump tensors"
        in found["missing"]
    )
    assert found["next_config"]["dump"]["dump_mode"] == "all"


def test_without_addresses_no_operator_is_blamed(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    rows = [
        replace(row, address=None)
        for file in Workload.parse(f"{_FLOW},nan=3@1").expected_files("/dump")
        for row in whole_file(origin_of(file.name), file.data)
    ]
    table = tmp_path / "run.parquet"
    with table.open("wb") as file:
        writer = ParquetWriter(file)
        writer.write(TensorRows(rows).columns(COLUMNS))
        writer.close()

    found = diagnosed(capsys, table)

    assert {it["blame"] for it in found["origins"]} == {"unknown"}
    assert "the dump has no addresses: what was read from where is not known" in found["missing"]


def test_a_run_that_was_interrupted(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = capture(tmp_path / "run", f"{_FLOW},nan=3@1")
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    torn = next(it for it in reversed(lines) if b"/transformer_0/1/2/" in it)  # of the last step
    kept = [it for it in lines[:-1] if it != torn]
    (run / "journal.jsonl").write_bytes(b"".join(kept) + torn[:20])

    found = diagnosed(capsys, run)

    assert found["origins"][0]["op_name"] == "layer_3_Relu"
    assert any("a run was stopped before its end" in line for line in found["missing"])


def test_two_runs_of_one_capture(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = capture(tmp_path / "run", f"{_FLOW},nan=3@1")
    capture(run, f"{_FLOW},nan=5@1,seed=9", "--append")

    found = diagnosed(capsys, run)

    assert found["origins"][0]["op_name"] in {"layer_3_Relu", "layer_5_Relu"}
    assert any("several sessions of one rank" in line for line in found["missing"])


def test_two_jobs_in_one_directory_are_not_mixed(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    job = capture(tmp_path / "jobs" / "a", f"{_FLOW},nan=3@2")
    shutil.copytree(job, tmp_path / "jobs" / "b")  # with the very same names
    assert main(["diagnose", str(job), "--json"]) == 3

    found = diagnosed(capsys, tmp_path / "jobs")

    assert (found["origins"][0]["op_name"], found["origins"][0]["blame"]) == ("layer_3_Relu", "made")
    note = f"{tmp_path}/jobs holds 2 captures, taken for different jobs; name one: a, b"
    assert note in found["missing"]


@pytest.mark.parametrize("what", ["empty", "garbage"])
def test_nothing_to_diagnose_is_not_called_clean(
    tmp_path: Path, capsys: CaptureFixture[str], what: str
) -> None:
    path = tmp_path / "run"
    if what == "empty":
        path.mkdir()
    else:
        path.write_text("no dump\n")

    assert "has no tensors of operators" in refusal(capsys, path)


def test_a_path_that_is_not_there(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    assert "run does not exist; name a capture" in refusal(capsys, tmp_path / "run")


def test_a_capture_without_its_journal(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = capture(tmp_path / "run", f"{_FLOW},nan=3@1")
    (run / "journal.jsonl").unlink()

    assert "a run was stopped before its end" in refusal(capsys, run)


def test_a_damaged_manifest(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = capture(tmp_path / "run", f"{_FLOW},nan=3@1")
    (run / "manifest.json").write_text("{")

    assert "manifest.json is not dumpstream's" in refusal(capsys, run)


def test_damaged_files_leave_it_open(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = capture(tmp_path / "run", f"{_FLOW},nan=3@1", "--no-pack")
    damaged = [path for path in (run / "files").rglob("*Relu*") if path.is_file()]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:60])

    found = diagnosed(capsys, run)

    assert found["origins"][0]["blame"] == "unknown"
    assert sum("has 60 bytes instead of" in line for line in found["missing"]) == len(damaged)


_BLACKLIST = """{"dump": {"dump_path": "%s", "dump_mode": "all", "dump_level": "op",
    "dump_list": [{"opname_blacklist": [{"name": "layer_3_Add", "pos": ["input1"]}]}]}}"""
_CONFIGURATION = "the configuration that it was dumped with: if a blacklist left inputs of an operator out"


def test_of_dump_files_alone_it_is_not_known_what_was_left_out(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    for file in Workload.parse(f"{_FLOW}+Add,nan=3@1").expected_files(tmp_path):
        path = tmp_path / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)

    assert any(it.startswith(_CONFIGURATION) for it in diagnosed(capsys, tmp_path)["missing"])


def test_what_a_configuration_left_out_is_known_of_each_of_several_captures(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(_BLACKLIST % (tmp_path / "npu"))
    workload = f"{_FLOW.replace('MatMulV2+Relu', 'Add')},nan=3@1"
    for name in ("a", "b"):
        capture(tmp_path / "runs" / name, workload, "--config", str(tmp_path / "acl.json"))

    found = diagnosed(capsys, tmp_path / "runs")

    assert found["origins"][0]["reason"] == "the configuration left inputs of it out"
    assert not any(it.startswith(_CONFIGURATION) for it in found["missing"])
