"""Files measured together have the rows that their maker and numpy expect."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from dumpstream.sinks import WholeFile

from .conftest import DTYPES, FORMATS, Tensor, dump, together

if TYPE_CHECKING:
    from numpy.typing import NDArray


def doubles(tensor: Tensor) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.frombuffer(tensor.data, tensor.dtype[2]).astype(np.float64)


def expected_numbers(tensor: Tensor) -> dict[str, Any]:
    """Return the columns that follow from the elements; sums are compared apart."""
    elements = np.frombuffer(tensor.data, tensor.dtype[2])
    values = elements if elements.dtype.kind in "iub" else doubles(tensor)
    count, is_float = len(elements), values.dtype.kind == "f"
    finite = values[np.isfinite(values)] if is_float else values
    tiny = ml_dtypes.finfo(elements.dtype).smallest_normal if is_float else 0  # type: ignore[no-untyped-call]
    columns = {
        "count": count,
        "nan": int(np.isnan(values).sum()) if is_float else 0,
        "pos_inf": int(np.isposinf(values).sum()) if is_float else 0,
        "neg_inf": int(np.isneginf(values).sum()) if is_float else 0,
        "zero": int((values == 0).sum()),
        "negative": int((values < 0).sum()),
        "subnormal": int(((finite != 0) & (np.abs(finite) < float(tiny))).sum()) if is_float else 0,
        "max": float(values.max()) if count else None,
        "min": float(values.min()) if count else None,
        "finite_max": float(finite.max()) + 0.0 if len(finite) else None,
        "finite_min": float(finite.min()) + 0.0 if len(finite) else None,
        "max_integer": Decimal(int(values.max())) if count and not is_float else None,
        "min_integer": Decimal(int(values.min())) if count and not is_float else None,
        "hash": xxh3_64_hexdigest(tensor.data),
    }
    return {name: _without_sign_of_zero(value) for name, value in columns.items()}


def _without_sign_of_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def expected_sums(tensor: Tensor) -> dict[str, float | None]:
    with np.errstate(all="ignore"):
        values = doubles(tensor)
        finite = values[np.isfinite(values)]
        return {
            "mean": float(values.mean()) if len(values) else None,
            "std": float(values.std()) if len(values) else None,
            "l2norm": float(np.sqrt(np.square(values).sum())),
            "finite_mean": float(finite.mean()) if len(finite) else None,
        }


def check_sums(tensor: Tensor, sums: dict[str, float | None]) -> None:
    expected = expected_sums(tensor)
    assert {name: value is None for name, value in sums.items()} == {
        name: value is None for name, value in expected.items()
    }
    magnitudes = np.abs(doubles(tensor))
    magnitudes = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    if len(magnitudes) and not 1e-150 < magnitudes.min() <= magnitudes.max() < 1e150:
        return  # the square of one is no double, and all that is left is how the sum was rounded
    for name in sums.keys() & {name for name, value in expected.items() if value is not None}:
        tolerance = 1e-9 * float(magnitudes.max(initial=0))
        assert sums[name] == pytest.approx(expected[name], rel=1e-9, abs=tolerance, nan_ok=True), name


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    item = np.dtype(dtype[2]).itemsize
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    size = int(np.prod(shape)) * item
    if np.dtype(dtype[2]) == np.bool_:
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    elif np.dtype(dtype[2]).kind == "f" and draw(st.booleans()):  # any bits are mostly NaN or huge
        values = draw(
            st.lists(st.floats(-1000, 1000, width=16), min_size=size // item, max_size=size // item)
        )
        data = np.array(values, dtype[2]).tobytes()
    else:
        data = draw(st.binary(min_size=size, max_size=size))
    return Tensor(
        draw(st.sampled_from(["input", "output"])),
        dtype,
        draw(st.sampled_from([*FORMATS])),
        shape,
        tuple(draw(st.lists(st.integers(0, 2**64 - 1), max_size=2))),
        data,
        draw(st.binary(max_size=3)),
        draw(st.integers(0, 2**64 - 1)),
    )


def expected_row(number: int, tensor: Tensor, index: int) -> dict[str, Any]:
    """Return what is known of a tensor of file *number*, but for its sums."""
    size = len(tensor.data + tensor.padding)
    row = expected_numbers(tensor) | {
        "file": name_of(number),
        "op_type": "Add",
        "op_name": f"add_{number}",
        "model": "net",
        "iteration": number,
        "device": 3,
        "task": 4,
        "stream": 5,
        "timestamp": number + 10**15,
        "io": tensor.io,
        "index": index,
        "dtype": tensor.dtype[1],
        "format": FORMATS[tensor.format],
        "shape": [*tensor.shape],
        "original_shape": [*tensor.original_shape],
        "size": size,
        "bytes": size,
        "address": tensor.address or None,
        "model_id": 7,
        "source": "host",
    }
    return {column: value for column, value in row.items() if value is not None}


def name_of(number: int) -> str:
    return f"/d/20260530164725/3//net/7/{number}/Add.add_{number}.4.5.{number + 10**15}"


@given(files=st.lists(st.lists(tensors(), min_size=1, max_size=4), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_rows_are_what_the_maker_and_numpy_know(files: list[list[Tensor]]) -> None:
    rows = iter(together(*(WholeFile(name_of(number), dump(it)) for number, it in enumerate(files))))

    for number, made in enumerate(files):
        for io in ("input", "output"):
            for index, tensor in enumerate(it for it in made if it.io == io):
                row = next(rows)
                check_sums(tensor, {column: row.pop(column) for column in expected_sums(tensor)})
                known = {column: value for column, value in row.items() if value is not None}
                # Told apart as text, since NaN equals nothing.
                assert repr(sorted(known.items())) == repr(
                    sorted(expected_row(number, tensor, index).items())
                )
    assert next(rows, None) is None
