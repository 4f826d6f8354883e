"""Tensors rearranged to another layout."""

from __future__ import annotations

import numpy as np
import pytest
from tests.format.blocked import block

from .conftest import FLOATS, NAME, Rig, dump, output, stored


@pytest.mark.parametrize("original", ["NCHW", "NHWC"])
def test_blocked_tensor_is_rearranged_by_its_original_shape(rig: Rig, original: str) -> None:
    nchw = np.arange(2 * 19 * 3 * 4, dtype="<f2").reshape(2, 19, 3, 4)
    blocked = block(nchw, "NCHW", "NC1HWC0")
    shape = {"NCHW": nchw.shape, "NHWC": (2, 3, 4, 19)}[original]

    loaded = rig.array(stored(blocked, "float16", form="NC1HWC0", original_shape=shape), layout="NCHW")

    assert np.array_equal(loaded, nchw)


def test_groups_come_from_the_sub_format(rig: Rig) -> None:
    weights = np.arange(12 * 5 * 2 * 3, dtype="<f2").reshape(12, 5, 2, 3)
    blocked = block(weights, "NCHW", "FRACTAL_Z", groups=4)

    loaded = rig.array(
        stored(blocked, "float16", form="FRACTAL_Z", original_shape=weights.shape, sub_format=4),
        layout="NCHW",
    )

    assert np.array_equal(loaded, weights)


def test_shape_that_is_given_replaces_the_original_one(rig: Rig) -> None:
    matrix = np.arange(20 * 35, dtype="<f2").reshape(20, 35)

    loaded = rig.array(
        stored(block(matrix, "ND", "FRACTAL_NZ"), "float16", form="FRACTAL_NZ"),
        layout="ND",
        shape=(20, 35),
    )

    assert np.array_equal(loaded, matrix)


def test_narrow_elements_are_rearranged_by_their_own_width(rig: Rig) -> None:
    nchw = (np.arange(70 * 2 * 2) % 7).astype(np.int8).reshape(1, 70, 2, 2)
    codes = block(nchw, "NCHW", "NC1HWC0", c0=64).reshape(-1)
    data = (codes[::2] | codes[1::2] << 4).astype(np.uint8).tobytes()
    message = output("int4", [codes.size], len(data), form="NC1HWC0", original_shape=nchw.shape)

    loaded = rig.array(dump(message, data), layout="NHWC")

    assert np.array_equal(loaded, nchw.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(("form", "shape"), [("ND", (2, 3)), ("NCHW", (6,)), ("NHWC", (1, 1, 2, 3))])
def test_tensor_without_axes_to_rearrange_is_written_as_it_lies(
    rig: Rig, form: str, shape: tuple[int, ...]
) -> None:
    loaded = rig.array(stored(FLOATS.reshape(shape), "float32", form=form), layout="NHWC")

    assert np.array_equal(loaded, FLOATS.reshape(shape))


def test_tensor_that_cannot_be_rearranged_is_left_out_and_told(rig: Rig) -> None:
    message = output("float32", [2, 3], 24, form="FRACTAL_ZZ") + output("float32", [2, 3], 24)
    rig.add(dump(message, FLOATS.tobytes() * 2))

    (converted,) = rig.convert(layout="NCHW")

    assert sorted(rig.files()) == [f"{NAME}.output.1.npy"]
    assert "output 0: FRACTAL_ZZ cannot be rearranged to NCHW" in (converted.problem or "")


@pytest.mark.parametrize("shape", [(2**64 - 1, 0, 5), (0, 2**63)])
def test_original_shape_that_no_array_has_is_a_problem_of_that_tensor(
    rig: Rig, shape: tuple[int, ...]
) -> None:
    rig.add(stored(np.zeros(0, "<f4"), "float32", form="FRACTAL_NZ", original_shape=shape))

    (converted,) = rig.convert(layout="ND")

    assert (converted.problem or "").startswith("output 0: ")
