"""Tensors as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zstandard

from dumpstream import DumpFile, DumpFormatError
from dumpstream.format.dtypes import DTYPES

from .conftest import DYNAMIC, FLOAT, FLOATS, STRING, TWO, output, with_header


class TestShapes:
    def array(self, data: bytes, *dims: int, dtype: int = FLOAT) -> Any:
        file = DumpFile.open(with_header(output(len(data), *dims, dtype=dtype), data))
        return file.array(file.tensors[0])

    def test_bytes_behind_the_shape_are_left_out(self) -> None:
        np.testing.assert_array_equal(self.array(FLOATS.tobytes() + b"padding", 2, 3), FLOATS)

    @pytest.mark.parametrize("dims", [(), (DYNAMIC,), (DYNAMIC, 3)])
    def test_no_shape_and_a_dynamic_one_give_one_dimension(self, dims: tuple[int, ...]) -> None:
        np.testing.assert_array_equal(self.array(FLOATS.tobytes() + b"abc", *dims), FLOATS.reshape(-1))

    def test_dimension_of_zero_gives_no_elements(self) -> None:
        assert self.array(b"", 0, 3).shape == (0, 3)
        assert self.array(b"padding", 4, 0).shape == (4, 0)

    def test_what_is_no_number_is_bytes(self) -> None:
        array = self.array(b"text", 2, dtype=STRING)

        assert (array.dtype, array.tobytes()) == (np.uint8, b"text")

    @pytest.mark.parametrize("dims", [(2, 4), (2**40, 2**40), (2**63,) * 30])
    def test_shape_that_needs_more_than_there_is_is_refused(self, dims: tuple[int, ...]) -> None:
        with pytest.raises(DumpFormatError, match=r"output 0.*needs .* bytes and has 24") as caught:
            self.array(FLOATS.tobytes(), *dims)

        assert caught.value.position == len(with_header(output(24, *dims)))

    def test_shape_that_no_array_can_have_is_refused(self) -> None:
        with pytest.raises(DumpFormatError, match="shape that cannot be read"):
            self.array(b"", 0, 2**63, 2**63)


class TestElements:
    @pytest.mark.parametrize("number", [11, 13, 17, 27, 28, 32, 33, 37])
    @pytest.mark.parametrize("compressed", [False, True])
    def test_blocks_of_elements_are_the_array(self, number: int, *, compressed: bool) -> None:
        count = 3_000_003
        size = DTYPES[number].stored_bytes(count, 0) + 5  # with padding
        raw = np.random.default_rng(number).bytes(size)
        data = with_header(output(size, count, dtype=number), raw)

        with DumpFile.open(zstandard.compress(data, 1) if compressed else data) as dump:
            (tensor,) = dump.tensors
            blocks = [block.copy() for block in dump.elements(tensor)]
            array = dump.array(tensor)

        assert len(blocks) > 1
        assert np.concatenate(blocks).tobytes() == array.tobytes()
        assert {(block.dtype, block.ndim) for block in blocks} == {(array.dtype, 1)}

    def test_those_before_the_end_of_the_file_come_before_the_error(self) -> None:
        data = zstandard.compress(TWO[:-2])

        with DumpFile.open(data) as dump:
            blocks = dump.elements(dump.tensors[1])

            assert next(blocks).tolist() == [0, 1, 2, 3, 4]
            with pytest.raises(DumpFormatError, match="needs 2 bytes more"):
                next(blocks)

    def test_shape_that_does_not_fit_is_refused(self) -> None:
        data = with_header(output(24, 7), bytes(24))

        with DumpFile.open(data) as dump, pytest.raises(DumpFormatError, match="needs 28 bytes and has 24"):
            next(dump.elements(dump.tensors[0]))
