"""Directories that are compared as columns give the rows that the catalog gives, whatever is in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import DumpBuilder

from dumpstream import compare
from dumpstream.comparison.divergence import severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dumpstream.comparison.table import ComparisonRow

_ROOT = "20260530164725"
_FIRST_TIME = 1780159660000000
_ND, _NCHW, _FRACTAL_NZ = 2, 0, 29
_VALUES = [
    0.0,
    -0.0,
    1.0,
    1.0 + 2**-20,
    1.001,
    3.0,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e-30,
    2.0**70,
]


class Drawn(NamedTuple):
    """A tensor that was drawn: what an array is made of."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[float, ...]
    address: int
    form: int

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The elements."""
        found = np.resize(np.array(self.values), self.shape)
        if np.dtype(self.dtype).kind in "iub":
            found = np.nan_to_num(found, nan=7, posinf=9, neginf=-9).clip(0, 100)
        with np.errstate(all="ignore"):
            return found.astype(self.dtype)


class DrawnFile(NamedTuple):
    """A dump file that was drawn."""

    op_type: str
    op_name: str
    level: str  #: its directory
    time: int
    task: int
    inputs: tuple[Drawn, ...]
    outputs: tuple[Drawn, ...]
    damage: str = ""

    @property
    def name(self) -> str:
        """Its path below that of the dump."""
        return f"{self.level}/{self.op_type}.{self.op_name}.{self.task}.3.{_FIRST_TIME + self.time}"

    @property
    def data(self) -> bytes:
        """Its bytes."""
        dump = DumpBuilder(self.op_name)
        for tensor in self.inputs:
            dump.input(tensor.array, form=tensor.form, address=tensor.address)
        for tensor in self.outputs:
            dump.output(tensor.array, form=tensor.form, address=tensor.address)
        built = dump.build()
        return {"": built, "cut": built[:-1], "long": built + b"\0", "noise": b"\xff" * 40, "empty": b""}[
            self.damage
        ]


tensors = st.builds(
    Drawn,
    st.sampled_from(
        ["float32", "float32", "float16", "float64", "int64", "uint64", "int8", "bool", "complex64"]
    ),
    st.sampled_from([(3,), (2, 2), (1, 1, 2, 2), *[(5,)] * 9, (0,)]),
    st.lists(st.sampled_from(_VALUES), min_size=1, max_size=4).map(tuple),
    st.sampled_from([*range(1, 5)] * 5 + [0]),
    st.sampled_from([*[_ND] * 20, _NCHW, _FRACTAL_NZ]),
)
drawn_files = st.builds(
    DrawnFile,
    st.sampled_from(["Add", "HcomAllReduce", "aclnnAdd_1_L0", "aclnnAdd_2_L0"]),
    st.sampled_from(["add", "mul_1"]),
    st.sampled_from(
        [f"{_ROOT}/0/net/1/0", f"{_ROOT}/0/net/1/1", f"{_ROOT}/0/other/2/0", f"{_ROOT}/1/net/1/0"]
    ),
    st.integers(0, 3),
    st.integers(1, 2),
    st.lists(tensors, max_size=2).map(tuple),
    st.lists(tensors, max_size=2).map(tuple),
    st.sampled_from([*[""] * 30, "cut", "long", "noise", "empty"]),
)


@st.composite
def two_runs(draw: st.DrawFn) -> tuple[list[DrawnFile], list[DrawnFile]]:
    """Return two runs that have much in common."""
    mine = draw(st.lists(drawn_files, min_size=1, max_size=8))
    if draw(st.booleans()):
        mine = [half for file in mine for half in _halves(file)]
    later = draw(st.sampled_from([0, 100]))
    golden = [file._replace(time=file.time + later) for file in mine]
    for number, file in enumerate(golden):
        if draw(st.booleans()):
            golden[number] = file._replace(
                inputs=tuple(_changed(draw, it) for it in file.inputs),
                outputs=tuple(_changed(draw, it) for it in file.outputs),
            )
    if draw(st.integers(0, 5)) == 0:
        golden[0] = draw(drawn_files)
    return mine, golden


def _halves(file: DrawnFile) -> list[DrawnFile]:
    """Return the files of a collective, whose inputs are dumped before it runs."""
    if not file.op_type.startswith("Hcom") or not file.inputs or not file.outputs:
        return [file]
    return [file._replace(outputs=()), file._replace(inputs=(), time=file.time + 1)]


def _changed(draw: st.DrawFn, tensor: Drawn) -> Drawn:
    factor = draw(st.sampled_from([1.0, 1.0, 1 + 2**-22, 1 + 2**-12, 1.5]))
    found = tensor._replace(values=tuple(it * factor for it in tensor.values))
    if draw(st.integers(0, 5)) == 0:
        found = found._replace(values=(*tensor.values[1:], draw(st.sampled_from(_VALUES))))
    return found._replace(dtype="float32") if draw(st.integers(0, 5)) == 0 else found


def _write(directory: Path, run: Sequence[DrawnFile]) -> Path:
    for file in run:
        path = directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    return directory


def _rows(mine: Path, golden: Path, **options: Any) -> tuple[list[ComparisonRow], Any, dict[Any, int]]:
    with compare(mine, golden, **options) as comparison:
        rows = [*comparison]
    return rows, comparison.summary.sentence, dict(comparison.summary.counts)


def _text(row: ComparisonRow) -> str:
    """Return *row* so that NaN is like NaN."""
    return repr(row)


LIMITS = st.sampled_from(
    [{}, {}, {}, {"rtol": 0.5}, {"atol": 1.5}, {"limit": {"cosine": 0.99}}, {"metrics": ["kl"]}]
)


@settings(max_examples=150, deadline=None)
@given(two_runs(), LIMITS)
def test_columns_and_the_catalog_give_the_same_rows(
    runs: tuple[list[DrawnFile], list[DrawnFile]], limits: dict[str, Any]
) -> None:
    with TemporaryDirectory() as text:
        directory = Path(text)
        sides = [_write(directory / name, run) for name, run in zip(("mine", "golden"), runs, strict=True)]
        same = directory / "same.txt"
        same.write_text("* -> *\n")  # with a map, everything goes through the catalog
        columns, catalog = _rows(*sides, **limits), _rows(*sides, names=same, **limits)
        assert [*map(_text, columns[0])] == [*map(_text, catalog[0])]
        assert columns[1:] == catalog[1:]
        _check_worst(sides[0], sides[1], catalog[0], limits)


def _check_worst(mine: Path, golden: Path, rows: Sequence[ComparisonRow], limits: dict[str, Any]) -> None:
    worst = sorted(
        (it for it in rows if it.verdict not in {"identical", "close"}), key=severity, reverse=True
    )
    with compare(mine, golden, **limits) as comparison:
        assert [*map(_text, comparison.worst(3))] == [*map(_text, worst[:3])]


@pytest.mark.parametrize("count", [1, 300])
def test_operators_that_ran_once_are_compared_as_columns(count: int, tmp_path: Path) -> None:
    tensor = Drawn("float32", (3,), (1.0, 2.0), 3, _ND)
    file = DrawnFile("Add", "add", f"{_ROOT}/0/net/1/0", 0, 1, (tensor,), (tensor._replace(address=4),))
    run = [file._replace(op_name=f"add_{it}", time=it) for it in range(count)]
    last = run[-1]._replace(outputs=(tensor._replace(address=4, values=(1.0, 5.0)),))
    mine, golden = _write(tmp_path / "mine", run), _write(tmp_path / "golden", [*run[:-1], last])
    with compare(mine, golden) as comparison:
        plain = comparison.pairing.plain()
        (row,) = comparison.worst(5)
    assert plain is not None
    assert len(plain) == count
    assert comparison.tensors == 2 * count
    assert (row.op_name, row.role, row.occurrence) == (f"add_{count - 1}", "added here", 0)
    assert replace(row, reason=None).input_error == 0
