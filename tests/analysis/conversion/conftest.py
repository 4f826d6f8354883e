"""Dump files to convert, whose headers are written here byte by byte, and where they are converted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.conftest import field

from dumpstream.analysis.conversion import ConversionOptions, Converted, convert
from dumpstream.format.dtypes import DTYPES
from dumpstream.format.formats import FORMATS
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.outputs import Outputs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

NAME = "Conv2D.conv1.4.65535.1780159660546556"
NUMBERS = {dtype.short: number for number, dtype in DTYPES.items()}
_FORMATS = {form.name: number for number, form in FORMATS.items()}


def output(
    dtype: str, shape: Sequence[int], size: int, *, form: str = "ND", address: int = 1, **more: Any
) -> bytes:
    """An output; *more* are its original_shape and sub_format."""
    original = b"".join(field(1, dim) for dim in more.get("original_shape", ()))
    return field(
        3,
        field(1, NUMBERS[dtype])
        + field(2, _FORMATS[form])
        + field(3, b"".join(field(1, dim) for dim in shape))
        + field(6, size)
        + field(7, original)
        + field(8, more.get("sub_format", 0))
        + field(9, address),
    )


def dump(message: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(message)) + message + data


def stored(array: NDArray[Any], dtype: str, **more: Any) -> bytes:
    """A dump file with one output."""
    return dump(output(dtype, array.shape, array.nbytes, **more), array.tobytes())


FLOATS = np.arange(6, dtype="<f4").reshape(2, 3)
PLAIN = stored(FLOATS, "float32")


class Rig:
    def __init__(self, directory: Path) -> None:
        self.source, self.out = directory / "source", directory / "out"
        self.source.mkdir()

    def add(self, data: bytes | bytearray, name: str = NAME) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def convert(self, *paths: Path, replace: bool = False, **options: Any) -> list[Converted]:
        with Outputs(self.out, replace=replace) as outputs:
            found = list(find_inputs(paths or [self.source]))
            return list(convert(found, outputs, ConversionOptions(**options)))

    def files(self) -> dict[str, bytes]:
        found = [path for path in self.out.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.out)): path.read_bytes() for path in found}

    def array(self, data: bytes, **options: Any) -> NDArray[Any]:
        """Convert a file with one output, and load it."""
        self.add(data)
        (converted,) = self.convert(**options)
        assert converted.problem is None
        array: NDArray[Any] = np.load(self.out / f"{NAME}.output.0.npy")
        return array


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
