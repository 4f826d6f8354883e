from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

import dumpstream
from dumpstream.archive.alertrow import AlertRow
from dumpstream.archive.rows import read_journal
from dumpstream.cli import main
from dumpstream.config.check import check_bytes
from dumpstream.simulation import Workload
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS, Provenance, TensorRow
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.capture import CaptureFixture
    from _pytest.monkeypatch import MonkeyPatch

WORKLOAD = "flow=on,models=1,ops=8,steps=3,tensor_bytes=256-1024,seed=3,op_types=MatMulV2+Relu+Add+LayerNorm"


def write_dumps(root: Path, workload: str = WORKLOAD, *, fault: str = "nan=4@1") -> Path:
    """Write the files of a run as CANN does."""
    for file in Workload.parse(f"{workload},{fault}").expected_files("/dump"):
        path = root / file.name.strip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    return root


def write_table(path: Path, ranks: int, fault: str) -> Path:
    """Write the statistics of a job of several ranks."""
    workload = Workload.parse(f"{WORKLOAD}+HcomAllReduce,ranks={ranks},{fault}")
    rows: list[TensorRow] = []
    for rank in range(ranks):
        for file in workload.of_rank(rank).expected_files(f"/dump{rank}"):
            rows += whole_file(origin_of(file.name, of=Provenance(rank)), file.data)
    with path.open("wb") as out:
        writer = ParquetWriter(out)
        writer.write(TensorRows(rows).columns(COLUMNS))
        writer.close()
    return path


def diagnosed(capsys: CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Return what ``diagnose --json`` prints, which must have found something."""
    assert main(["diagnose", "--json", *map(str, arguments)]) == 3
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_without_bad_values_is_fine(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    assert main(["diagnose", str(write_dumps(tmp_path, fault="nan="))]) == 0

    assert capsys.readouterr().out.startswith("No NaN or infinity or overflow in ")


def test_the_culprit_is_named_with_its_first_bad_element(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    (origin,) = diagnosed(capsys, write_dumps(tmp_path))["origins"]

    assert (origin["blame"], origin["step"], origin["op_name"]) == ("made", 1, "layer_4_MatMulV2")
    assert len(origin["first_index"]) == 2
    assert origin["confidence"] == "high"


def test_text_shows_the_sentence_and_the_evidence(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    assert main(["diagnose", str(write_dumps(tmp_path))]) == 3

    out = capsys.readouterr().out
    assert out.startswith(
        "The run made the first NaN: step 1, operator layer_4_MatMulV2 (MatMulV2), output 0: "
    )
    for title in ("Its tensors", "What ran before it", "The same operator in earlier steps"):
        assert f"\n{title}\n" in out


def test_statistics_of_many_ranks_are_enough(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    found = diagnosed(capsys, write_table(tmp_path / "job.parquet", 4, "nan=rank2:1@1"))

    (origin,) = found["origins"]
    assert (origin["rank"], origin["blame"], origin["op_name"]) == (2, "made", "layer_1_Relu")
    assert origin["victims"] == [0, 1, 3]
    assert origin["first_index"] is None


def test_the_next_configuration_is_ready_to_use(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    config = diagnosed(capsys, write_dumps(tmp_path))["next_config"]

    (chosen,) = config["dump"]["dump_list"]
    assert chosen["layer"][-2:] == ["layer_3_LayerNorm", "layer_4_MatMulV2"]
    config["dump"]["dump_path"] = str(tmp_path)
    assert not check_bytes(json.dumps(config).encode()).errors


def test_only_what_was_looked_for_is_found(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = write_dumps(tmp_path)

    assert main(["diagnose", str(run), "--look-for", "saturation"]) == 0
    assert capsys.readouterr().out.startswith("No saturation in ")
    assert main(["diagnose", str(run), "--look-for", "colour"]) == 2


def test_a_divergence_is_one_from_another_run(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path), "--look-for", "divergence"]) == 2
    assert "--look-for divergence needs --golden RUN" in capsys.readouterr().err
    with pytest.raises(ValueError, match="needs a golden run"):
        dumpstream.diagnose(tmp_path, look_for=["divergence"])


@pytest.mark.parametrize("name", ["flow.parquet", "flow.json"])
def test_the_data_flow_is_written_as_a_table(tmp_path: Path, capsys: CaptureFixture[str], name: str) -> None:
    path = tmp_path / name
    diagnosed(capsys, write_dumps(tmp_path / "run"), "--graph", path)

    if name.endswith("json"):
        edges = json.loads(path.read_bytes())
    else:
        edges = pyarrow.parquet.read_table(path).to_pylist()
    first = next(it for it in edges if it["to_op_name"] == "layer_1_Relu")
    assert (first["from_op_name"], first["from_io"], first["to_io"]) == (
        "layer_0_MatMulV2",
        "output",
        "input",
    )
    assert {it["link"] for it in edges} >= {"proven"}


def test_a_golden_run_shows_the_operator_that_diverged(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    run = write_dumps(tmp_path / "run", fault="perturb=4@1:0.5")
    golden = write_dumps(tmp_path / "golden", fault="nan=")

    (origin,) = diagnosed(capsys, run, "--golden", golden)["origins"]

    assert (origin["kind"], origin["blame"]) == ("divergence", "made")
    assert (origin["step"], origin["op_name"]) == (1, "layer_4_MatMulV2")


def test_a_repeated_run_says_whether_the_fault_is_deterministic(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    run, clean = write_dumps(tmp_path / "run"), write_dumps(tmp_path / "clean", fault="nan=")

    same = diagnosed(capsys, run, "--repeat", run)["repeat"]
    other = diagnosed(capsys, run, "--repeat", clean)["repeat"]

    assert same["deterministic"] is True
    assert other["deterministic"] is False
    assert other["parts_at"] == "layer_4_MatMulV2 (step 1)"


def test_a_function_answers_the_same(tmp_path: Path) -> None:
    found = dumpstream.diagnose(write_dumps(tmp_path), look_for=["nan"])

    assert isinstance(found, dumpstream.Diagnosis)
    assert (found.found, found.origins[0].op_name) == (True, "layer_4_MatMulV2")


def test_what_is_not_there_is_one_line(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path / "nowhere")]) == 1

    assert "nowhere" in capsys.readouterr().err


def test_outputs_only_are_said_plainly(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    path = tmp_path / "outputs.parquet"
    rows = [
        row
        for file in Workload.parse(f"{WORKLOAD},nan=4@1").expected_files("/dump")
        for row in whole_file(origin_of(file.name), file.data)
        if row.io == "output"
    ]
    with path.open("wb") as out:
        writer = ParquetWriter(out)
        writer.write(TensorRows(rows).columns(COLUMNS))
        writer.close()

    found = diagnosed(capsys, path)

    assert found["origins"][0]["blame"] == "unknown"
    assert found["origins"][0]["op_name"] == "layer_4_MatMulV2"
    assert found["missing"][0].startswith("only outputs were dumped")
    assert found["next_config"]["dump"]["dump_mode"] == "all"


def test_a_capture_tells_the_culprit_while_it_runs(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    told = tmp_path / "told.jsonl"
    flags = ["--sink", "stats:", "--alert", "--on-alert", f"cat >> {told}"]

    assert main(["capture", "--out", str(tmp_path / "run"), "--simulate", f"{WORKLOAD},nan=4@1", *flags]) == 0

    said = "The run made the first NaN: step 1, operator layer_4_MatMulV2 (MatMulV2), output 0: "
    assert said in capsys.readouterr().err
    alerts = [json.loads(line) for line in told.read_text("utf-8").splitlines()]
    blamed = next(it for it in alerts if it["blame"] == "made")
    assert (blamed["op_name"], blamed["step"], blamed["kind"]) == ("layer_4_MatMulV2", 1, "nan")


def test_a_job_of_several_processes_tells_which_has_what(tmp_path: Path) -> None:
    workload = f"{WORKLOAD}+HcomAllReduce"
    job = ["simulate", "--ranks", "2", "--workload", workload, "--fault", "rank1:nan=3@1"]
    flags = ["--out", str(tmp_path / "job"), "--on-alert", f"cat > {tmp_path}/alert-$$"]

    program = [sys.executable, "-m", "dumpstream"]
    done = subprocess.run(
        [*program, "capture", *flags, "--", *program, *job], capture_output=True, text=True, check=True
    )

    assert "rank-1: The run made the first NaN: step 1, operator layer_3_LayerNorm" in done.stderr
    given = [json.loads(alert.read_bytes()) for alert in tmp_path.glob("alert-*")]
    assert {(it["process"], it["rank"]) for it in given} == {("rank-0", 0), ("rank-1", 1)}
    for rank in range(2):
        rows = [*read_journal(tmp_path / "job" / f"rank-{rank}" / "journal.jsonl")]
        told = [row for row in rows if isinstance(row, AlertRow)]
        assert told
        assert rank == 0 or told[-1].blame == "made"


def test_a_command_that_fails_is_said(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    arguments = ["--simulate", f"{WORKLOAD},nan=4@1", "--sink", "stats:", "--on-alert", "exit 7"]

    assert main(["capture", "--out", str(tmp_path / "run"), *arguments]) == 0

    assert "--on-alert ended with exit code 7" in capsys.readouterr().err


def test_a_command_that_cannot_be_started_is_said_and_the_capture_goes_on(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "run", refuse)
    arguments = ["--simulate", f"{WORKLOAD},nan=4@1", "--sink", "stats:", "--on-alert", "true"]

    assert main(["capture", "--out", str(tmp_path / "run"), *arguments]) == 0

    assert "no shell could be started: Resource temporarily unavailable" in capsys.readouterr().err
