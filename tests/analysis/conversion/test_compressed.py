"""Compressed files, which are converted without being unpacked first."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import zstandard

from dumpstream.analysis.tensorfiles import FileFormat
from dumpstream.format.dtypes import DTYPES

from .conftest import FLOATS, NAME, NUMBERS, Rig, dump, output


@pytest.mark.parametrize("file_format", FileFormat)
@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "float6_e3m2"])
def test_a_compressed_file_gives_what_the_plain_one_does(
    rig: Rig, dtype: str, file_format: FileFormat
) -> None:
    shape, bits = (7, 300_001), DTYPES[NUMBERS[dtype]].bits
    raw = np.random.default_rng(1).bytes(-(-7 * 300_001 * bits // 8))
    data = dump(output(dtype, shape, len(raw)), raw)
    rig.add(data, "plain.a.1.2.3")
    rig.add(zstandard.compress(data, 1), "small.a.1.2.3.zst")

    assert [it.problem for it in rig.convert(format=file_format)] == [None, None]

    plain, small = (data for _, data in sorted(rig.files().items()))
    assert plain == small


def test_what_is_compressed_does_not_have_to_fit_into_memory(rig: Rig) -> None:
    size = 64 << 20
    data = dump(output("float64", [size // 8], size), bytes(size))
    rig.add(zstandard.compress(data, 1), f"{NAME}.zst")
    del data

    tracemalloc.start()
    rig.convert()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < size // 4
    assert (rig.out / f"{NAME}.output.0.npy").stat().st_size == size + 128


def test_a_compressed_tensor_that_ends_early_is_left_out(rig: Rig) -> None:
    message = output("float32", [2, 3], 24) + output("float32", [9], 36)
    rig.add(zstandard.compress(dump(message, FLOATS.tobytes() + bytes(20))), f"{NAME}.zst")

    (converted,) = rig.convert()

    assert converted.problem is not None
    assert "ends inside output 1" in converted.problem
    assert [path.name for path in rig.out.iterdir()] == [f"{NAME}.output.0.npy"]
