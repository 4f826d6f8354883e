"""Tensors whose axes are in another order on the other side are rearranged before they are compared."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from tests.comparison.test_elements import dump_bytes, plain
from tests.format.blocked import block

from dumpstream import compare

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dumpstream.comparison.table import ComparisonRow

_NAME = "Conv2D.conv.1.2.1780159660000000"
_SHAPE = (2, 20, 3, 5)  #: in the order NCHW
_FORMS = ("NCHW", "NHWC", "NC1HWC0 of NCHW", "NC1HWC0 of NHWC")


def dumped(directory: Path, array: NDArray[Any], form: str) -> Path:
    """Write *array*, whose axes are NCHW, as a dump file in *form*."""
    blocked, _, order = form.partition(" of ")
    ordered = array.transpose(["NCHW".index(axis) for axis in order or form])
    stored = block(array, "NCHW", blocked) if order else ordered
    original = ordered.shape if order else ()
    directory.mkdir()
    content = dump_bytes(stored.tobytes(), "float16", blocked, stored.shape, original)
    (directory / _NAME).write_bytes(content)
    return directory


def compared(tmp_path: Path, mine: str, golden: str, change: tuple[int, ...] | None = None) -> ComparisonRow:
    array = plain(_SHAPE)
    other = array.copy()
    if change is not None:
        other[change] += 100
    sides = dumped(tmp_path / "mine", array, mine), dumped(tmp_path / "golden", other, golden)
    with compare(*sides) as comparison:
        (row,) = comparison
    return row


# Of two blocked tensors, the headers do not say which order the original shapes have.
_BOTH = [it for it in product(_FORMS, _FORMS) if {*it} != {*_FORMS[2:]}]


@pytest.mark.parametrize(("mine", "golden"), _BOTH)
def test_the_same_elements_in_two_layouts_are_identical(tmp_path: Path, mine: str, golden: str) -> None:
    row = compared(tmp_path, mine, golden)
    assert row.verdict == "identical"
    assert row.metrics.bit_equal == math.prod(_SHAPE)


def test_the_worst_element_is_found_by_the_axes_of_mine(tmp_path: Path) -> None:
    row = compared(tmp_path, "NHWC", "NCHW", change=(1, 7, 2, 4))
    assert row.verdict == "different"
    assert row.metrics.worst is not None
    assert (row.metrics.worst.index, row.shape) == ((1, 2, 4, 7), (2, 3, 5, 20))


def test_formats_with_other_axes_stay_as_they_are(tmp_path: Path) -> None:
    array = plain((2, 20, 3, 5))
    sides = [tmp_path / "mine", tmp_path / "golden"]
    for side, form in zip(sides, ("NCHW", "ND"), strict=True):
        side.mkdir()
        (side / _NAME).write_bytes(dump_bytes(array.tobytes(), "float16", form, array.shape))
    with compare(*sides) as comparison:
        (row,) = comparison
    assert row.verdict == "identical"
