"""Layouts: tensors rearranged from the order of the device to that of frameworks. Does no I/O.

A plain format names its axes in order, as NCHW does. A blocked format splits some of them: C into C1 blocks
of C0 channels, which are 32 bytes, and N, or the rows of a matrix, into blocks of 16. The last block is
padded with zeros. FRACTAL_NZ splits the last two axes of any shape. In FRACTAL_Z and FRACTAL_Z_3D the
weights of a grouped convolution lie in blocks of several groups, each in its own corner of the block.
"""

from collections.abc import Iterator, Sequence
from math import lcm, prod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_CUBE = 16  #: rows of a block
_BLOCK_BYTES = 32  #: of the columns of a block

_ANY = "ND"
_MATRICES = "FRACTAL_NZ"
_MATRIX_AXES = 4  #: of a blocked matrix

#: Formats that name each axis once.
PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC")
#: The axes of blocked formats: ``c`` and ``k`` are C1 and C0, ``n`` and ``m`` the same for N, ``g`` blocks of
#: groups. If N is split, the axes before it are stored as one.
_BLOCKED = {
    "NC1HWC0": "NcHWk",
    "C1HWNC0": "cHWNk",
    "NDC1HWC0": "NDcHWk",
    "FRACTAL_Z": "gcHWnmk",
    "FRACTAL_Z_3D": "gDcHWnmk",
}
#: Every format that can be rearranged.
_FORMATS = (_MATRICES, *_BLOCKED, *PLAIN)


def targets_of(source_format: str) -> tuple[str, ...]:
    """Return the formats, other than *source_format*, to which `to_layout` can rearrange it."""
    if source_format == _MATRICES:
        return (_ANY, "NCHW", "NHWC")
    if source_format not in _FORMATS:
        return ()
    letters = set(_BLOCKED.get(source_format, source_format).upper()) & set("NCDHW")
    plain = tuple(plain for plain in PLAIN if plain != source_format and set(plain) == letters)
    return (*plain, _ANY) if source_format in _BLOCKED else plain


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
        array: in the shape it is stored in, which tells C0; or its elements in order, in any other shape.
        source_format: CANN's name of the format.
        target_format: likewise, one of `targets_of` the source, or the source itself. ND is the order of
            *original_shape*.
        original_shape: the shape before the device padded it; needed for blocked formats.
        original_format: the order of *original_shape*. If it is not given, or is ND, it is that of the
            target for FRACTAL_NZ, and the order that fits the array for other formats.
        groups: of the convolution that has these weights, at least 1.
        c0: channels of a block, if the array does not tell; by default as many as have 32 bytes.

    Raises:
        ValueError: it cannot be rearranged so, or the original shape does not fit the array.
    """
    if source_format == target_format:
        return array
    if target_format not in (ways := targets_of(source_format)):
        raise ValueError(_no_way(source_format, target_format, ways))
    if source_format in PLAIN:
        return _permuted(array, source_format, target_format)
    if not original_shape:
        raise ValueError(f"{source_format} needs the original shape; give it as original_shape (--shape)")
    order = None if original_format == _ANY else original_format
    if source_format == _MATRICES:
        matrices = _from_matrices(array, tuple(original_shape), c0)
        return _permuted(matrices, order or target_format, target_format)
    orders = [order] if order else [way for way in ways if way != _ANY]
    geometry = _fitting(
        array, source_format, orders, original_shape, ordered=target_format == _ANY, groups=groups, c0=c0
    )
    return _joined(array, geometry, geometry.order if target_format == _ANY else target_format)


class _Geometry(NamedTuple):
    """A tensor in plain and in blocked form."""

    axes: str  #: of the blocked form
    order: str  #: of the plain form's shape
    lengths: dict[str, int]  #: of the plain axes
    groups: int
    together: int  #: groups that share a block
    blocks: dict[str, int]  #: lengths of the blocked axes

    @classmethod
    def of(cls, axes: str, order: str, shape: Sequence[int], groups: int, c0: int) -> Self:
        """Return the geometry of a tensor whose plain *shape* is in *order*, in blocks of *c0* channels."""
        lengths = dict(zip(order, shape, strict=True))
        if not (axes.startswith("g") and lengths["N"]):
            groups = 1
        inputs, outputs, together = lengths["C"], lengths["N"] // groups, 1
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
        return cls(axes, order, lengths, groups, together, blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape it is stored in."""
        lengths, fused = [self.blocks[axis] for axis in self.axes], _fused(self.axes)
        return (prod(lengths[:fused]), *lengths[fused:])

    def split(self, order: str) -> str:
        """Return the axes that those of *order* are split into."""
        parts = {"C": "ck", "N": "nm" if "n" in self.axes else "N"}
        return "".join(parts.get(axis, axis) for axis in order)

    def corners(self) -> Iterator[tuple[int, dict[str, slice], dict[str, slice]]]:
        """Yield for each group its block, and where it lies in the block and in the plain tensor."""
        inputs, outputs = self.lengths["C"], self.lengths["N"] // self.groups
        for group in range(self.groups):
            block, corner = divmod(group, self.together)
            inside = {"C": _section(corner, inputs), "N": _section(corner, outputs)}
            yield block, inside, {"N": _section(group, outputs)}


def _fused(axes: str) -> int:
    """Return how many of the first *axes* are stored as one."""
    return axes.index("n") if "n" in axes else 1


def _section(number: int, length: int) -> slice:
    return slice(number * length, (number + 1) * length)


def _fitting(
    array: NDArray[Any],
    source_format: str,
    orders: Sequence[str],
    original_shape: Sequence[int],
    *,
    ordered: bool,
    groups: int,
    c0: int | None,
) -> _Geometry:
    """Return the only geometry in which *original_shape*, in one of *orders*, is stored as *array*.

    Unless it is *ordered*, orders that give the axes the same lengths are the same geometry.
    """
    axes = _BLOCKED[source_format]
    told, c0 = _find_c0(array, len(axes) - _fused(axes) + 1, c0)
    found: dict[str, _Geometry] = {}
    for order in orders:
        _check_rank(original_shape, order)
        if original_shape[order.index("N")] % groups and axes.startswith("g"):
            continue
        geometry = _Geometry.of(axes, order, original_shape, groups, c0)
        same = array.shape == geometry.shape if told else array.size == prod(geometry.shape)
        if same and (ordered or all(geometry.lengths != other.lengths for other in found.values())):
            found[order] = geometry
    if len(found) == 1:
        return next(iter(found.values()))
    shapes = f"the original shape {list(original_shape)} and {source_format} {list(array.shape)}"
    if found:
        remedy = "choose one of them as the layout" if ordered else "give original_format"
        flags = "--layout" if ordered else "--shape in its order"
        raise ValueError(f"{shapes} fit together as {' and as '.join(found)}; {remedy} ({flags})")
    raise ValueError(f"{shapes} do not fit together with C0 = {c0} and {groups} groups")


def _joined(array: NDArray[Any], geometry: _Geometry, order: str) -> NDArray[Any]:
    """Return the plain tensor, its axes in *order*."""
    axes, lengths, blocks = geometry.axes, geometry.lengths, geometry.blocks
    array = array.reshape([blocks[axis] for axis in axes])
    if not axes.startswith("g"):
        axes, array = f"g{axes}", array[np.newaxis]
    array = array.transpose([axes.index(axis) for axis in f"g{geometry.split(order)}"])
    whole = [prod(blocks[part] for part in geometry.split(axis)) for axis in order]
    padded = array.reshape(array.shape[0], *whole)
    if geometry.groups == 1:
        return np.ascontiguousarray(padded[0][tuple(slice(lengths[axis]) for axis in order)])
    plain = np.empty([lengths[axis] for axis in order], array.dtype)
    for block, inside, place in geometry.corners():
        plain[_index(order, place)] = padded[block][_index(order, inside)]
    return plain


def _from_matrices(array: NDArray[Any], shape: tuple[int, ...], c0: int | None) -> NDArray[Any]:
    *batch, rows, columns = shape if len(shape) > 1 else (1, *shape)
    told, c0 = _find_c0(array, len(batch) + _MATRIX_AXES, c0)
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


def _index(order: str, slices: dict[str, slice]) -> tuple[slice, ...]:
    return tuple(slices.get(axis, slice(None)) for axis in order)


def _find_c0(array: NDArray[Any], rank: int, c0: int | None) -> tuple[bool, int]:
    """Return whether the shape of *array* tells C0, because it has this *rank*; and C0."""
    told = array.ndim == rank and array.shape[-1] > 0
    return told, array.shape[-1] if told else c0 or max(1, _BLOCK_BYTES // array.dtype.itemsize)


def _no_way(source_format: str, target_format: str, ways: Sequence[str]) -> str:
    refused = f"{source_format} cannot be rearranged to {target_format}"
    if ways:
        return f"{refused}; it can be to {', '.join(ways)}"
    return f"{refused}; only {', '.join(_FORMATS)} can be rearranged"
