"""A run in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conftest import CaptureBuilder

import dumpstream
from dumpstream import DumpFile, DumpstreamError
from dumpstream.analysis.measurement import measure
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload

_FILES = [*Workload.parse("models=1,ops=4,steps=3,nan=2@1,tensor_bytes=64-500").expected_files("/dump")]


@pytest.fixture
def run(builder: CaptureBuilder) -> Path:
    for file in _FILES:
        builder.add(file.name, file.data, Verdict.COMPLETE)
    return builder.finish()


def test_tensors_are_a_table_with_a_row_for_each(run: Path) -> None:
    rows = [row for file in measure([run]) for row in file.rows]

    table = dumpstream.open_run(run).tensors()

    assert sorted(table["hash"].to_pylist()) == sorted(str(row.hash) for row in rows)
    assert sum(table["nan"].to_pylist()) == sum(row.nan or 0 for row in rows)


def test_tensor_of_a_file_is_an_array(run: Path) -> None:
    file = _FILES[0]
    with DumpFile.open(file.data) as dump:
        expected = np.array(dump.array(next(it for it in dump.tensors if it.io == "output")))

    found = dumpstream.open_run(run).file(file.name).tensor("output", 0)

    np.testing.assert_array_equal(found, expected)
    found[...] = 0  # it is the caller's own


def test_pattern_must_match_one_file(run: Path) -> None:
    opened = dumpstream.open_run(run)

    assert opened.file("*/1/1/*layer_2_*").name == _FILES[6].name
    with pytest.raises(DumpstreamError, match="name one"):
        opened.file("*layer_2_*")
    with pytest.raises(DumpstreamError):
        opened.file("nothing")


def test_tensor_that_a_file_has_not_is_an_error_that_lists_those_it_has(run: Path) -> None:
    with pytest.raises(LookupError, match="output 0"):
        dumpstream.open_run(run).file(_FILES[0].name).tensor("output", 7)


def test_run_shows_itself_with_its_sentence_and_a_map(run: Path) -> None:
    opened = dumpstream.open_run(run)

    shown = opened._repr_html_()

    assert "#d61860" in shown
    assert opened.diagnose().sentence.partition(":")[0] in shown


def test_run_shows_a_table_of_its_first_bad_tensors(run: Path) -> None:
    shown = dumpstream.open_run(run)._repr_html_()

    first = shown.partition("<td>")[2].partition("</tr>")[0]
    assert "the first bad tensors" in shown
    assert first.startswith("1</td>")
    assert "layer_2_" in first
    assert "output 0" in first


def test_names_of_a_hostile_run_are_not_markup(tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "<script>alert(1)<")
    for file in _FILES:
        builder.add(file.name.replace("layer_2", "<b>layer_2"), file.data, Verdict.COMPLETE)

    shown = dumpstream.open_run(builder.finish())._repr_html_()

    assert "<script>" not in shown
    assert "<b>layer" not in shown
