"""How the tensors of a run differ from those of a second one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import CaptureBuilder
from tests.view.conftest import dumpstream

import dumpstream as library
from dumpstream._errors import DumpstreamError
from dumpstream.comparison.table import Agreement
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.view.against import IDENTICAL, NOT_COMPARED, NOT_FINITE, Against, compare_rows
from dumpstream.view.scene import Scene, read_scene

_WORKLOAD = "models=1,ops=5,steps=3,flow=on,tensor_bytes=256-1024"


def captured(path: Path, workload: str, *, leave_out: str | None = None) -> Path:
    builder = CaptureBuilder(path)
    for file in Workload.parse(workload).expected_files("/dump"):
        if leave_out is None or leave_out not in file.name:
            builder.add(file.name, file.data, Verdict.COMPLETE)
    return builder.finish()


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return captured(tmp_path / "golden", _WORKLOAD)


def compared(mine: Path, golden: Path) -> tuple[Scene, Against]:
    scene = read_scene(mine)
    return scene, compare_rows(mine, golden, scene.subject.trace)


def rows_at(scene: Scene, name: str, step: int) -> list[int]:
    """Return the rows of the outputs of an operator."""
    trace = scene.subject.trace
    return [
        row
        for row in range(len(trace))
        if (trace.text("op_name", row) or "").startswith(name)
        and trace.number("iteration", row) == step
        and trace.io[row] == 1
    ]


def test_same_run_is_identical_everywhere(tmp_path: Path, golden: Path) -> None:
    scene, against = compared(captured(tmp_path / "mine", _WORKLOAD), golden)

    assert (against.columns["difference"] == IDENTICAL).all()
    assert len(against.columns["difference"]) == len(scene.subject.trace)
    assert against.first is None


def test_perturbed_operator_is_where_the_difference_begins(tmp_path: Path, golden: Path) -> None:
    scene, against = compared(captured(tmp_path / "mine", f"{_WORKLOAD},perturb=2@1:0.01"), golden)

    row = rows_at(scene, "layer_2_", 1)[0]
    found = against.of(row)
    assert against.first == row
    assert found["verdict"] == Agreement.DIFFERENT
    assert found["mean"] != found["golden_mean"]
    assert found["golden"] == scene.subject.trace.text("file", row)
    assert -4 < against.columns["difference"][row] < 0
    before = rows_at(scene, "layer_1_", 1)
    assert (against.columns["difference"][before] == IDENTICAL).all()


def test_nan_on_one_side_is_worse_than_any_difference(tmp_path: Path, golden: Path) -> None:
    scene, against = compared(captured(tmp_path / "mine", f"{_WORKLOAD},nan=2@1"), golden)

    row = rows_at(scene, "layer_2_", 1)[0]
    assert against.columns["difference"][row] == NOT_FINITE == against.columns["difference"].max()
    assert against.of(row)["nan_mine"] > 0


def test_tensor_without_a_counterpart_is_not_called_identical(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", _WORKLOAD, leave_out="layer_3_")
    scene, against = compared(captured(tmp_path / "mine", _WORKLOAD), golden)

    row = rows_at(scene, "layer_3_", 2)[0]
    assert against.columns["difference"][row] == NOT_COMPARED > IDENTICAL
    assert against.of(row)["verdict"] == Agreement.UNMATCHED


def test_comparison_survives_the_cache(tmp_path: Path, golden: Path) -> None:
    _, against = compared(captured(tmp_path / "mine", f"{_WORKLOAD},perturb=2@1:0.01"), golden)

    again = Against.from_bytes(against.to_bytes())

    assert [again.of(row) for row in range(5)] == [against.of(row) for row in range(5)]
    assert (again.run, again.sentence, again.first) == (against.run, against.sentence, against.first)
    for name, values in against.columns.items():
        np.testing.assert_array_equal(again.columns[name], values)


def test_notebook_compares_two_runs(tmp_path: Path, golden: Path) -> None:
    mine = library.open_run(captured(tmp_path / "mine", f"{_WORKLOAD},perturb=2@1:0.01"))

    with mine.compare(library.open_run(golden)) as comparison:
        differing = [row for row in comparison if row.verdict is Agreement.DIFFERENT]

    assert differing[0].op_name is not None
    assert differing[0].op_name.startswith("layer_2_")
    assert not comparison.summary.agrees


def test_other_run_that_is_not_there_is_an_error(tmp_path: Path, golden: Path) -> None:
    scene = read_scene(golden)

    with pytest.raises(DumpstreamError, match="nothing"):
        compare_rows(golden, tmp_path / "nothing", scene.subject.trace)
    done = subprocess.run(
        dumpstream("view", golden, "--against", tmp_path / "nothing", "--no-browser"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "nothing" in done.stderr
    assert "Traceback" not in done.stderr


def test_export_onto_a_file_names_its_own_option(tmp_path: Path, golden: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("mine")

    done = subprocess.run(
        dumpstream("view", golden, "--export", file), capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "another --export" in done.stderr
    assert file.read_text() == "mine"
