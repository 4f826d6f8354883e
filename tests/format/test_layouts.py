from __future__ import annotations

from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.format.blocked import block

from dumpstream.format.layouts import targets_of, to_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DTYPES = [np.float32, np.int32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int64]
_IMAGES = ["NC1HWC0", "C1HWNC0", "FRACTAL_Z"]
_VOLUMES = ["NDC1HWC0", "FRACTAL_Z_3D"]
_WAYS = [
    (blocked, plain) for blocked in (*_IMAGES, *_VOLUMES) for plain in targets_of(blocked) if plain != "ND"
]

_LENGTHS = st.integers(1, 4)
_CHANNELS = st.integers(1, 70)


def _numbered(shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
    return (np.arange(1, prod(shape) + 1) % 120).astype(dtype).reshape(shape)


def _ordered(lengths: dict[str, int], order: str) -> tuple[int, ...]:
    return tuple(lengths[axis] for axis in order)


def _same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@given(st.sampled_from(_WAYS), st.sampled_from(_DTYPES), st.data())
@settings(max_examples=200, deadline=None)
def test_blocked_tensor_comes_back_exactly(way: tuple[str, str], dtype: Any, data: st.DataObject) -> None:
    blocked, plain = way
    lengths = {axis: data.draw(_CHANNELS if axis in "NC" else _LENGTHS, axis) for axis in plain}
    array = _numbered(_ordered(lengths, plain), dtype)

    stored = block(array, plain, blocked)
    back = to_layout(stored, blocked, plain, array.shape, original_format=plain)

    assert _same(back, array)


@given(st.sampled_from(["FRACTAL_Z", "FRACTAL_Z_3D"]), st.sampled_from(_DTYPES), st.data())
@settings(max_examples=150, deadline=None)
def test_grouped_weights_come_back_exactly(blocked: str, dtype: Any, data: st.DataObject) -> None:
    plain = data.draw(st.sampled_from(targets_of(blocked)[:-1]))
    groups = data.draw(st.integers(1, 20), "groups")
    lengths = {axis: data.draw(st.integers(1, 3), axis) for axis in plain}
    lengths["N"] = groups * data.draw(st.integers(1, 20), "N of a group")
    lengths["C"] = data.draw(st.integers(1, 40), "C")
    array = _numbered(_ordered(lengths, plain), dtype)

    stored = block(array, plain, blocked, groups=groups)
    back = to_layout(stored, blocked, plain, array.shape, original_format=plain, groups=groups)

    assert _same(back, array)


@given(st.lists(st.integers(1, 4), max_size=3), st.integers(1, 40), _CHANNELS, st.sampled_from(_DTYPES))
@settings(max_examples=100, deadline=None)
def test_matrices_of_any_batch_come_back_exactly(
    batch: list[int], rows: int, columns: int, dtype: Any
) -> None:
    array = _numbered((*batch, rows, columns), dtype)

    stored = block(array, "ND", "FRACTAL_NZ")

    assert _same(to_layout(stored, "FRACTAL_NZ", "ND", array.shape), array)


def test_matrices_whose_original_format_is_nd_have_the_order_of_the_layout() -> None:
    array = _numbered((2, 3, 4, 5), np.float16)

    stored = block(array, "ND", "FRACTAL_NZ")

    assert _same(to_layout(stored, "FRACTAL_NZ", "NCHW", array.shape, original_format="ND"), array)


def test_vector_is_a_matrix_of_one_row() -> None:
    array = _numbered((37,), np.float16)

    stored = block(array, "ND", "FRACTAL_NZ")

    assert _same(to_layout(stored, "FRACTAL_NZ", "ND", (37,)), array)


def test_nc1hwc0_splits_channels() -> None:
    stored = _numbered((2, 2, 3, 4, 16), np.float16)

    nchw = to_layout(stored, "NC1HWC0", "NCHW", (2, 19, 3, 4))

    assert nchw.shape == (2, 19, 3, 4)
    for n, c, h, w in np.ndindex(nchw.shape):
        assert nchw[n, c, h, w] == stored[n, c // 16, h, w, c % 16]


def test_ndc1hwc0_splits_channels() -> None:
    stored = _numbered((2, 2, 2, 3, 4, 8), np.float32)

    ncdhw = to_layout(stored, "NDC1HWC0", "NCDHW", (2, 9, 2, 3, 4))

    assert ncdhw.shape == (2, 9, 2, 3, 4)
    for n, c, d, h, w in np.ndindex(ncdhw.shape):
        assert ncdhw[n, c, d, h, w] == stored[n, d, c // 8, h, w, c % 8]


@pytest.mark.parametrize(("blocked", "plain"), _WAYS)
def test_nd_is_the_order_of_the_original_shape(blocked: str, plain: str) -> None:
    array = _numbered(_ordered({"N": 2, "C": 19, "D": 3, "H": 4, "W": 5}, plain), np.float16)

    stored = block(array, plain, blocked)

    assert _same(to_layout(stored, blocked, "ND", array.shape), array)


def test_nd_is_refused_where_the_order_of_the_original_shape_is_not_known() -> None:
    stored = _numbered((2, 2, 1, 2, 2, 16), np.float16)

    with pytest.raises(ValueError, match=r"fit together as NCDHW and as NDHWC.*the layout \(--layout\)"):
        to_layout(stored, "NDC1HWC0", "ND", (2, 2, 2, 2, 2))
    assert to_layout(stored, "NDC1HWC0", "NCDHW", (2, 2, 2, 2, 2)).shape == (2, 2, 2, 2, 2)


def test_c1hwnc0_splits_channels() -> None:
    stored = _numbered((2, 2, 3, 5, 32), np.int8)

    nchw = to_layout(stored, "C1HWNC0", "NCHW", (5, 33, 2, 3))

    assert nchw.shape == (5, 33, 2, 3)
    for n, c, h, w in np.ndindex(nchw.shape):
        assert nchw[n, c, h, w] == stored[c // 32, h, w, n, c % 32]


def test_fractal_nz_has_columns_of_blocks() -> None:
    stored = _numbered((2, 2, 2, 16, 8), np.float32)

    matrices = to_layout(stored, "FRACTAL_NZ", "ND", (2, 18, 11))

    assert matrices.shape == (2, 18, 11)
    for batch, row, column in np.ndindex(matrices.shape):
        element = stored[batch, column // 8, row // 16, row % 16, column % 8]
        assert matrices[batch, row, column] == element


def test_fractal_z_splits_channels_and_kernels() -> None:
    stored = _numbered((2 * 3, 2, 16, 16), np.float16)

    nchw = to_layout(stored, "FRACTAL_Z", "NCHW", (17, 5, 2, 3), original_format="NCHW")

    assert nchw.shape == (17, 5, 2, 3)
    for n, c, h, w in np.ndindex(nchw.shape):
        assert nchw[n, c, h, w] == stored[(c // 16 * 2 + h) * 3 + w, n // 16, n % 16, c % 16]


@pytest.mark.parametrize(
    ("groups", "cin", "cout"), [(4, 3, 2), (5, 8, 4), (3, 20, 16), (16, 1, 1), (7, 1, 1)]
)
def test_groups_lie_in_corners_of_shared_blocks(groups: int, cin: int, cout: int) -> None:
    depth, height, width = 2, 2, 3
    together = min(groups, lcm(lcm(cin, 16) // cin, lcm(cout, 16) // cout))
    c1, n1 = -(-together * cin // 16), -(-together * cout // 16)
    blocks = _numbered((-(-groups // together), depth, c1, height, width, n1 * 16, 16), np.float16)
    stored = blocks.reshape(-1, n1, 16, 16)
    shape = (groups * cout, cin, depth, height, width)

    plain = to_layout(stored, "FRACTAL_Z_3D", "NCDHW", shape, original_format="NCDHW", groups=groups)

    for group, c, n in product(range(groups), range(cin), range(cout)):
        at_c, at_n = group % together * cin + c, group % together * cout + n
        lies = blocks[group // together, :, at_c // 16, :, :, at_n, at_c % 16]
        assert np.array_equal(lies, plain[group * cout + n, c])


@pytest.mark.parametrize(
    ("source", "target"),
    [(source, target) for source in ("NCHW", "NHWC", "HWCN", "NDHWC") for target in targets_of(source)],
)
def test_plain_formats_are_permuted(source: str, target: str) -> None:
    lengths = {"N": 2, "C": 3, "D": 4, "H": 5, "W": 6}
    array = _numbered(_ordered(lengths, source))

    moved = to_layout(array, source, target)

    assert moved.shape == _ordered(lengths, target)
    assert moved.flags.c_contiguous
    assert _same(
        moved, np.moveaxis(array, range(len(source)), [target.index(axis) for axis in source]).copy()
    )


def test_array_in_the_wanted_format_is_not_copied() -> None:
    array = _numbered((2, 3))

    assert to_layout(array, "ND", "ND") is array


@pytest.mark.parametrize("original", ["NCHW", "NHWC", "HWCN"])
@pytest.mark.parametrize("blocked", _IMAGES)
def test_order_of_the_original_shape_shows_by_what_fits(blocked: str, original: str) -> None:
    lengths = {"N": 20, "C": 35, "H": 5, "W": 7}
    nhwc = _numbered(_ordered(lengths, "NHWC"), np.float16)
    stored = block(nhwc, "NHWC", blocked)

    back = to_layout(stored, blocked, "NHWC", _ordered(lengths, original))

    assert _same(back, nhwc)


def test_original_shape_that_fits_in_two_orders_is_refused() -> None:
    array = _numbered((2, 4, 4, 8), np.float16)
    stored = block(array, "NHWC", "FRACTAL_Z")

    with pytest.raises(ValueError, match=r"fit together as NHWC and as .*; give original_format"):
        to_layout(stored, "FRACTAL_Z", "NCHW", (2, 4, 4, 8))


def test_c0_is_taken_from_the_stored_shape() -> None:
    array = _numbered((1, 19, 2, 2), np.float32)
    stored = block(array, "NCHW", "NC1HWC0", c0=16)

    assert _same(to_layout(stored, "NC1HWC0", "NCHW", array.shape), array)


def test_flat_array_is_rearranged_with_the_c0_that_is_given() -> None:
    array = _numbered((3, 70, 2, 2), np.int8)
    stored = block(array, "NCHW", "NC1HWC0", c0=64).reshape(-1)

    assert _same(to_layout(stored, "NC1HWC0", "NCHW", array.shape, original_format="NCHW", c0=64), array)


def test_matrices_take_the_order_of_the_target_unless_told_otherwise() -> None:
    nchw = _numbered((2, 3, 4, 5), np.float16)
    stored = block(nchw, "NCHW", "FRACTAL_NZ")

    assert _same(to_layout(stored, "FRACTAL_NZ", "NCHW", nchw.shape), nchw)
    assert _same(
        to_layout(stored, "FRACTAL_NZ", "NHWC", nchw.shape, original_format="NCHW"),
        np.ascontiguousarray(nchw.transpose(0, 2, 3, 1)),
    )


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("NC1HWC0", "NCDHW", r"NC1HWC0 cannot be rearranged to NCDHW; it can be to NCHW, NHWC, HWCN, CHWN"),
        ("FRACTAL_NZ", "HWCN", r"it can be to ND, NCHW, NHWC"),
        ("FRACTAL_ZZ", "ND", r"only FRACTAL_NZ, NC1HWC0, .* can be rearranged"),
        ("NCHW", "ND", r"it can be to NHWC, HWCN, CHWN"),
    ],
)
def test_what_cannot_be_done_is_told_with_what_can(source: str, target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_layout(_numbered((16, 16, 16, 16)), source, target, (16, 16, 16, 16))


@pytest.mark.parametrize(
    ("stored", "source", "original", "message"),
    [
        ((1, 2, 3, 3, 16), "NC1HWC0", (1, 40, 3, 3), r"do not fit together with C0 = 16"),
        ((1, 2, 3, 3, 16), "NC1HWC0", (1, 20), r"has 4 axes"),
        ((1, 2, 3, 3, 16), "NC1HWC0", (), r"needs the original shape"),
        ((2, 2, 16, 16), "FRACTAL_NZ", (40, 20), r"do not fit together"),
        ((9, 1, 16, 16), "FRACTAL_Z", (5, 7, 3, 2), r"do not fit together"),
        ((0, 0, 0, 0, 0), "NC1HWC0", (1, 20, 3, 3), r"do not fit together"),
    ],
)
def test_original_shape_that_does_not_fit_is_refused(
    stored: tuple[int, ...], source: str, original: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        to_layout(np.zeros(stored, np.float16), source, "NCHW", original)


def test_groups_that_do_not_divide_the_kernels_are_refused() -> None:
    stored = block(_numbered((4, 2, 1, 1), np.float16), "NCHW", "FRACTAL_Z")

    with pytest.raises(ValueError, match="do not fit together with C0 = 16 and 3 groups"):
        to_layout(stored, "FRACTAL_Z", "NCHW", (4, 2, 1, 1), original_format="NCHW", groups=3)


def test_empty_tensor_stays_empty_however_many_groups_are_claimed() -> None:
    stored = np.zeros((1, 0, 16, 16), np.float16)

    back = to_layout(stored, "FRACTAL_Z", "NCHW", (0, 3, 1, 1), original_format="NCHW", groups=2**31 - 1)

    assert back.shape == (0, 3, 1, 1)
