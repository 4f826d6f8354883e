"""Tensor data: bytes as real models have them, made without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_ROW = 1024
_VOCABULARY = 50_000
_LONG_ROW_BYTES = 30_000
_PERIOD_BYTES = 100_000


class Data(NamedTuple):
    """The bytes of a tensor, and the number of its data type in a dump header (0: of no tensor)."""

    name: str
    dtype: int
    bytes: bytes


def make_data(size: int) -> list[Data]:
    """Return each kind of data, about *size* bytes of it; the same in every run."""
    rng = np.random.default_rng(20261118)

    def floats(dtype: Any, of: Callable[[int], NDArray[Any]]) -> bytes:
        return of(size // np.dtype(dtype).itemsize).astype(dtype).tobytes()

    def draw(count: int) -> NDArray[Any]:
        return rng.standard_normal(count, np.float32)

    def normal(count: int) -> NDArray[Any]:
        return 0.02 * draw(count)

    def trained(count: int) -> NDArray[Any]:
        """Return rows of different scales with heavy tails."""
        scales = np.exp(0.5 * draw(count // _ROW + 1)).repeat(_ROW)[:count]
        return np.asarray(normal(count) * scales * np.exp(0.3 * draw(count)))

    def relu(count: int) -> NDArray[Any]:
        return np.asarray(np.maximum(draw(count), 0))

    def gelu(count: int) -> NDArray[Any]:
        x = draw(count)
        return np.asarray(x / (1 + np.exp(-1.702 * x)))

    def gradients(count: int) -> NDArray[Any]:
        return np.asarray(normal(count) * np.exp(3 * draw(count)))

    def ids(dtype: str) -> bytes:
        frequent = rng.zipf(1.2, size // np.dtype(dtype).itemsize) % _VOCABULARY
        return frequent.astype(dtype).tobytes()

    bf16 = ml_dtypes.bfloat16
    words = np.array([f"op_{number % 977}:step={number // 13}\n" for number in range(60_000)])
    row = floats("<f4", normal)[: 4 * _ROW]
    long_row = floats("<f2", normal)[:_LONG_ROW_BYTES]
    period = rng.bytes(_PERIOD_BYTES)
    return [
        Data("bf16 weights", 27, floats(bf16, normal)),
        Data("bf16 trained weights", 27, floats(bf16, trained)),
        Data("bf16 after GELU", 27, floats(bf16, gelu)),
        Data("bf16 gradients", 27, floats(bf16, gradients)),
        Data("fp32 weights", 1, floats("<f4", normal)),
        Data("fp32 trained weights", 1, floats("<f4", trained)),
        Data("fp32 gradients", 1, floats("<f4", gradients)),
        Data("fp32 of bf16", 1, floats("<f4", lambda count: normal(count).astype(bf16))),
        Data("fp16 after ReLU", 2, floats("<f2", relu)),
        Data("fp16 after GELU", 2, floats("<f2", gelu)),
        Data("fp64 weights", 12, floats("<f8", normal)),
        Data("int32 ids", 7, ids("<i4")),
        Data("int64 positions", 8, (np.arange(size // 8) % 4096).astype("<i8").tobytes()),
        Data("int16 counters", 5, (np.arange(size // 2) % (1 << 16)).astype("<i2").tobytes()),
        Data("bool mask", 11, (rng.random(size) < 0.1).tobytes()),
        Data("one row repeated", 1, row * (size // len(row))),
        Data("one long row repeated", 2, (long_row * (size // len(long_row) + 1))[:size]),
        Data("zeros", 27, bytes(size)),
        Data("noise in bf16", 27, rng.bytes(size)),
        Data("noise in int16", 5, rng.bytes(size)),
        Data("noise", 0, rng.bytes(size)),
        Data("noise repeated", 0, (period * (size // len(period) + 1))[:size]),
        Data("text", 0, (("".join(words)) * (size // 500_000 + 1))[:size].encode()),
    ]
