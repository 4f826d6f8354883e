"""Which tensors of a file become files, and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import field

from .conftest import FLOATS, NAME, PLAIN, Rig, dump, output, stored

if TYPE_CHECKING:
    import pytest


def test_every_kind_of_tensor_has_its_own_name(rig: Rig) -> None:
    sizes = field(3, 4)
    message = field(4, field(1, 1) + field(5, 4)) + output("float32", [1], 4) * 2
    rig.add(dump(message + field(5, sizes) + field(8, sizes), bytes(20)))

    (converted,) = rig.convert()

    assert converted.tensors == 5
    names = ["buffer.0", "input.0", "output.0", "output.1", "space.0"]
    assert sorted(rig.files()) == [f"{NAME}.{name}.npy" for name in names]


def test_tensor_without_address_has_no_file(rig: Rig) -> None:
    message = output("float32", [2, 3], 24, address=0) + output("float32", [2, 3], 24)
    rig.add(dump(message, FLOATS.tobytes()))

    (converted,) = rig.convert()

    assert converted.problem is None
    assert sorted(rig.files()) == [f"{NAME}.output.1.npy"]


def test_tensors_before_the_end_of_a_file_cut_short_are_written(rig: Rig) -> None:
    whole = dump(output("float32", [2, 3], 24) * 3, FLOATS.tobytes() * 3)
    rig.add(whole[:-30])

    (converted,) = rig.convert()

    assert sorted(rig.files()) == [f"{NAME}.output.0.npy"]
    assert converted.problem is not None
    assert converted.problem.startswith("ends inside output 1, which needs 6 bytes more")
    assert converted.problem.endswith(", and 1 more")


def test_shape_that_does_not_fit_is_a_problem_of_that_tensor(rig: Rig) -> None:
    rig.add(dump(output("float32", [9, 9], 24) + output("float32", [2, 3], 24), FLOATS.tobytes() * 2))

    (converted,) = rig.convert()

    assert sorted(rig.files()) == [f"{NAME}.output.1.npy"]
    assert "output 0" in (converted.problem or "")


def test_file_longer_than_its_header_says_is_written_and_told(rig: Rig) -> None:
    rig.add(PLAIN + b"more")

    (converted,) = rig.convert()

    assert sorted(rig.files()) == [f"{NAME}.output.0.npy"]
    assert "4 bytes more than its header says" in (converted.problem or "")


def test_file_of_version_1_is_converted(rig: Rig) -> None:
    rig.add(field(1, b"1.0") + field(3, field(1, 1) + field(5, FLOATS.tobytes())))

    rig.convert()

    assert np.load(rig.out / f"{NAME}.output.0.npy").tolist() == [0, 1, 2, 3, 4, 5]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_is_a_problem_of_the_file_and_never_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rig = Rig(tmp_path_factory.mktemp("damaged"))
    blocked = np.zeros((1, 1, 1, 1, 8), "<f4")
    original = bytearray(stored(blocked, "float32", form="NC1HWC0", original_shape=(1, 5, 1, 1)))
    for _ in range(data.draw(st.integers(1, 4))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    path = rig.add(original[: data.draw(st.integers(0, len(original)))])

    (converted,) = rig.convert(path, layout="NCHW", workers=1)

    assert converted.problem is not None or len(rig.files()) == converted.tensors
