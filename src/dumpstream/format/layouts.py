"""Layouts: tensors as the device arranges them, rearranged to what frameworks use, and back. Does no I/O.

A plain format names its axes in order, as NCHW does. A blocked format splits some of them: C into C1 blocks
of C0 channels, which are 32 bytes, and N, or the rows of a matrix, into blocks of 16; the last is padded
with zeros. FRACTAL_NZ does so with the last two axes of any shape. In FRACTAL_Z and FRACTAL_Z_3D the weights
of a grouped convolution lie in blocks of several groups, each in its own corner of the block.
"""

from __future__ import annotations

from math import lcm, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_CUBE = 16  #: rows of a block
_BLOCK_BYTES = 32  #: of the columns of a block

_ANY = "ND"
_MATRICES = "FRACTAL_NZ"
_MATRIX_AXES = 4  #: of a blocked matrix

#: Formats that name each axis once.
PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC")


class _Blocked(NamedTuple):
    """A blocked format: its axes, where ``c`` and ``k`` are C1 and C0, ``n`` and ``m`` the same of N."""

    axes: str
    #: How many of the first axes are stored as one.
    fused: int = 1

    @property
    def grouped(self) -> bool:
        return self.axes.startswith("g")

    @property
    def rank(self) -> int:
        return len(self.axes) - self.fused + 1

    def split(self, order: str) -> str:
        """Return the axes that those of *order* are split into."""
        return "".join({"C": "ck", "N": "nm" if "n" in self.axes else "N"}.get(axis, axis) for axis in order)


_BLOCKED = {
    "NC1HWC0": _Blocked("NcHWk"),
    "C1HWNC0": _Blocked("cHWNk"),
    "NDC1HWC0": _Blocked("NDcHWk"),
    "FRACTAL_Z": _Blocked("gcHWnmk", fused=4),
    "FRACTAL_Z_3D": _Blocked("gDcHWnmk", fused=5),
}

#: Every format that can be rearranged.
_FORMATS = (_MATRICES, *_BLOCKED, *PLAIN)


class _Geometry(NamedTuple):
    """A tensor in plain and in blocked form."""

    format: _Blocked
    lengths: dict[str, int]  #: of the plain axes
    groups: int
    together: int  #: groups that share a block
    blocks: dict[str, int]  #: lengths of the blocked axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape it is stored in."""
        lengths = [self.blocks[axis] for axis in self.format.axes]
        return (prod(lengths[: self.format.fused]), *lengths[self.format.fused :])

    def corners(self) -> Iterator[tuple[int, dict[str, slice], dict[str, slice]]]:
        """Yield for each group its block, and where it lies in that and in the plain tensor."""
        inputs, outputs = self.lengths["C"], self.lengths["N"] // self.groups
        for group in range(self.groups):
            block, corner = divmod(group, self.together)
            inside = {"C": _stretch(corner, inputs), "N": _stretch(corner, outputs)}
            yield block, inside, {"N": _stretch(group, outputs)}


def targets_of(source_format: str) -> tuple[str, ...]:
    """Return the formats that `to_layout` can make of *source_format*, itself left out."""
    if source_format == _MATRICES:
        return (_ANY, "NCHW", "NHWC")
    axes = _BLOCKED[source_format].axes if source_format in _BLOCKED else source_format
    letters = set(axes.upper()) & set("NCDHW")
    found = [plain for plain in PLAIN if plain != source_format and set(plain) == letters]
    return tuple(found) if source_format in (*_BLOCKED, *PLAIN) else ()


def to_layout(
    array: NDArray[Any],
    source_format: str,
    target_format: str,
    original_shape: Sequence[int] = (),
    *,
    original_format: str | None = None,
    groups: int = 1,
    c0: int | None = None,
) -> NDArray[Any]:
    """Return *array*, which is in *source_format*, in *target_format* and without padding.

    Args:
        array: in the shape it is stored in, which tells C0; of any other shape its elements in order.
        source_format: CANN's name of the format.
        target_format: likewise, one of `targets_of` the source, or the source itself.
        original_shape: what the shape was before the device padded it; needed for blocked formats.
        original_format: the order of *original_shape*. If it is not given, FRACTAL_NZ takes that of the
            target, and other formats whichever order fits the array.
        groups: of the convolution whose weights these are, at least 1.
        c0: channels of a block, if the array does not tell; otherwise as many as have 32 bytes.

    Raises:
        ValueError: there is no such way, or the original shape does not fit the array.
    """
    if source_format == target_format:
        return array
    if target_format not in (ways := targets_of(source_format)):
        raise ValueError(_no_way(source_format, target_format, ways))
    if source_format in PLAIN:
        return _permuted(array, source_format, target_format)
    if not original_shape:
        raise ValueError(f"{source_format} needs the original shape; give it as original_shape (--shape)")
    if source_format == _MATRICES:
        matrices = _from_matrices(array, tuple(original_shape), c0)
        return _permuted(matrices, original_format or target_format, target_format)
    orders = [original_format] if original_format else ways
    geometry = _fitting(array, source_format, orders, original_shape, groups=groups, c0=c0)
    return _joined(array, geometry, target_format)


def from_layout(
    array: NDArray[Any],
    source_format: str,
    target_format: str,
    *,
    groups: int = 1,
    c0: int | None = None,
) -> NDArray[Any]:
    """Return *array*, which is in the plain *source_format*, as the device has it in *target_format*.

    Raises:
        ValueError: there is no such way.
    """
    if source_format == target_format:
        return array
    if source_format not in targets_of(target_format):
        ways = [name for name in _FORMATS if source_format in targets_of(name)]
        raise ValueError(_no_way(source_format, target_format, ways))
    if target_format == _MATRICES:
        return _to_matrices(array, c0)
    if target_format in PLAIN:
        return _permuted(array, source_format, target_format)
    _check_rank(array.shape, source_format)
    lengths = dict(zip(source_format, array.shape, strict=True))
    geometry = _geometry(_BLOCKED[target_format], lengths, groups, c0 or _default_c0(array))
    return _split(array, geometry, source_format)


def _geometry(blocked: _Blocked, lengths: dict[str, int], groups: int, c0: int) -> _Geometry:
    if not (blocked.grouped and lengths["N"]):
        groups = 1
    outputs, rest = divmod(lengths["N"], groups)
    if rest:
        raise ValueError(f"N is {lengths['N']}, which cannot be divided into {groups} groups")
    inputs, together = lengths["C"], 1
    if groups > 1 and inputs and outputs:
        together = min(groups, lcm(lcm(inputs, c0) // inputs, lcm(outputs, _CUBE) // outputs))
    blocks = {
        **lengths,
        "g": -(-groups // together),
        "c": -(-together * inputs // c0),
        "k": c0,
        "n": -(-together * outputs // _CUBE),
        "m": _CUBE,
    }
    return _Geometry(blocked, lengths, groups, together, blocks)


def _fitting(
    array: NDArray[Any],
    source_format: str,
    orders: Sequence[str],
    original_shape: Sequence[int],
    *,
    groups: int,
    c0: int | None,
) -> _Geometry:
    """Return the one geometry that *original_shape*, in one of *orders*, has if it is stored as *array*."""
    blocked = _BLOCKED[source_format]
    told = array.ndim == blocked.rank and array.shape[-1] > 0
    c0 = array.shape[-1] if told else c0 or _default_c0(array)
    found: dict[str, _Geometry] = {}
    for order in orders:
        _check_rank(original_shape, order)
        lengths = dict(zip(order, original_shape, strict=True))
        if lengths["N"] % groups and blocked.grouped:
            continue
        geometry = _geometry(blocked, lengths, groups, c0)
        same = array.shape == geometry.shape if told else array.size == prod(geometry.shape)
        if same and all(geometry.lengths != other.lengths for other in found.values()):
            found[order] = geometry
    if len(found) == 1:
        return next(iter(found.values()))
    shapes = f"the original shape {list(original_shape)} and {source_format} {list(array.shape)}"
    if found:
        ways = " and as ".join(found)
        raise ValueError(f"{shapes} fit together as {ways}; give original_format (--shape in its order)")
    raise ValueError(f"{shapes} do not fit together with C0 = {c0} and {groups} groups")


def _joined(array: NDArray[Any], geometry: _Geometry, order: str) -> NDArray[Any]:
    """Return the plain tensor, its axes in *order*."""
    axes, lengths = geometry.format.axes, geometry.lengths
    array = array.reshape([geometry.blocks[axis] for axis in axes])
    if not geometry.format.grouped:
        axes, array = f"g{axes}", array[np.newaxis]
    array = array.transpose([axes.index(axis) for axis in f"g{geometry.format.split(order)}"])
    padded = array.reshape(array.shape[0], *(_padded(geometry, axis) for axis in order))
    if geometry.groups == 1:
        return np.ascontiguousarray(padded[0][tuple(slice(lengths[axis]) for axis in order)])
    plain = np.empty([lengths[axis] for axis in order], array.dtype)
    for block, inside, place in geometry.corners():
        plain[_index(order, place)] = padded[block][_index(order, inside)]
    return plain


def _split(array: NDArray[Any], geometry: _Geometry, order: str) -> NDArray[Any]:
    """Return the blocked tensor that *array*, its axes in *order*, makes."""
    axes, lengths = geometry.format.axes, geometry.lengths
    shape = [_padded(geometry, axis) for axis in order]
    padded = np.zeros([geometry.blocks["g"], *shape], array.dtype)
    if geometry.groups == 1:
        padded[0][tuple(slice(lengths[axis]) for axis in order)] = array
    else:
        for block, inside, place in geometry.corners():
            padded[block][_index(order, inside)] = array[_index(order, place)]
    parts = f"g{geometry.format.split(order)}"
    padded = padded.reshape([geometry.blocks[axis] for axis in parts])
    wanted = axes if geometry.format.grouped else f"g{axes}"
    return padded.transpose([parts.index(axis) for axis in wanted]).reshape(geometry.shape)


def _from_matrices(array: NDArray[Any], shape: tuple[int, ...], c0: int | None) -> NDArray[Any]:
    *batch, rows, columns = shape if len(shape) > 1 else (1, *shape)
    told = array.ndim == len(batch) + _MATRIX_AXES and array.shape[-1] > 0
    c0 = array.shape[-1] if told else c0 or _default_c0(array)
    blocked = (*batch, -(-columns // c0), -(-rows // _CUBE), _CUBE, c0)
    if array.shape != blocked if told else array.size != prod(blocked):
        raise ValueError(
            f"the original shape {list(shape)} and {_MATRICES} {list(array.shape)} do not fit together "
            f"with C0 = {c0}"
        )
    wide, high, deep, low = range(len(batch), len(batch) + _MATRIX_AXES)
    array = array.reshape(blocked).transpose([*range(len(batch)), high, deep, wide, low])
    padded = array.reshape(*batch, blocked[high] * _CUBE, blocked[wide] * c0)
    return np.ascontiguousarray(padded[..., :rows, :columns]).reshape(shape)


def _to_matrices(array: NDArray[Any], c0: int | None) -> NDArray[Any]:
    matrices = np.atleast_2d(array)
    *batch, rows, columns = matrices.shape
    c0 = c0 or _default_c0(array)
    high, wide = -(-rows // _CUBE), -(-columns // c0)
    padded = np.zeros([*batch, high * _CUBE, wide * c0], array.dtype)
    padded[..., :rows, :columns] = matrices
    parts = padded.reshape(*batch, high, _CUBE, wide, c0)
    first = len(batch)
    order = [*range(first), first + 2, first, first + 1, first + 3]
    return np.ascontiguousarray(parts.transpose(order))


def _permuted(array: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    if source == target:
        return array
    if sorted(source) != sorted(target):
        raise ValueError(_no_way(source, target, targets_of(source)))
    _check_rank(array.shape, source)
    return np.ascontiguousarray(array.transpose([source.index(axis) for axis in target]))


def _check_rank(shape: Sequence[int], order: str) -> None:
    if len(shape) != len(order):
        raise ValueError(f"{order} has {len(order)} axes, and the shape {list(shape)} has {len(shape)}")


def _padded(geometry: _Geometry, axis: str) -> int:
    return prod(geometry.blocks[part] for part in geometry.format.split(axis))


def _index(order: str, slices: dict[str, slice]) -> tuple[slice, ...]:
    return tuple(slices.get(axis, slice(None)) for axis in order)


def _stretch(number: int, length: int) -> slice:
    return slice(number * length, (number + 1) * length)


def _default_c0(array: NDArray[Any]) -> int:
    return max(1, _BLOCK_BYTES // array.dtype.itemsize)


def _no_way(source_format: str, target_format: str, ways: Sequence[str]) -> str:
    if ways:
        return f"{source_format} cannot be rearranged to {target_format}; it can be to {', '.join(ways)}"
    return (
        f"{source_format} cannot be rearranged to {target_format}; only {', '.join(_FORMATS)} can be at all"
    )
