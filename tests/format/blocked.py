"""Tensors as the device stores them, element by element; the code under test only goes the other way."""

from __future__ import annotations

from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS = 16  #: of a block
_FORMATS = {
    "NC1HWC0": (1, ["N", "C1", "H", "W", "C0"]),
    "C1HWNC0": (1, ["C1", "H", "W", "N", "C0"]),
    "NDC1HWC0": (1, ["N", "D", "C1", "H", "W", "C0"]),
    "FRACTAL_Z": (4, ["group", "C1", "H", "W", "N1", "N0", "C0"]),
    "FRACTAL_Z_3D": (5, ["group", "D", "C1", "H", "W", "N1", "N0", "C0"]),
}


def block(
    array: NDArray[Any], plain: str, blocked: str, *, groups: int = 1, c0: int | None = None
) -> NDArray[Any]:
    """Return *array*, whose axes *plain* names, as the device has it in *blocked*."""
    c0 = c0 or 32 // array.dtype.itemsize
    if blocked == "FRACTAL_NZ":
        return _block_matrices(np.atleast_2d(array), c0)
    lengths = dict(zip(plain, array.shape, strict=True))
    at = dict(zip(plain, np.indices(array.shape), strict=True))
    inputs, outputs = lengths["C"], lengths["N"] // groups
    together = min(groups, lcm(lcm(inputs, c0) // inputs, lcm(outputs, _ROWS) // outputs))
    group, output = np.divmod(at["N"], outputs)
    at["group"], corner = np.divmod(group, together)
    at["C1"], at["C0"] = np.divmod(corner * inputs + at["C"], c0)
    at["N1"], at["N0"] = np.divmod(corner * outputs + output, _ROWS)
    lengths |= {"group": -(-groups // together), "C1": -(-together * inputs // c0), "C0": c0}
    lengths |= {"N1": -(-together * outputs // _ROWS), "N0": _ROWS}
    fused, axes = _FORMATS[blocked]
    stored = np.zeros([lengths[axis] for axis in axes], array.dtype)
    stored[tuple(at[axis] for axis in axes)] = array
    return stored.reshape(prod(stored.shape[:fused]), *stored.shape[fused:])


def _block_matrices(matrices: NDArray[Any], c0: int) -> NDArray[Any]:
    *batch, rows, columns = matrices.shape
    *before, row, column = np.indices(matrices.shape)
    stored = np.zeros((*batch, -(-columns // c0), -(-rows // _ROWS), _ROWS, c0), matrices.dtype)
    stored[(*before, column // c0, row // _ROWS, row % _ROWS, column % c0)] = matrices
    return stored
