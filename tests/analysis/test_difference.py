from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import field

from dumpstream import DumpFile
from dumpstream.analysis import difference
from dumpstream.analysis.difference import ComparisonError, Difference, compare
from dumpstream.format.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conftest import DumpBuilder

FLOAT, INT4 = 1, 28


def file_of(data: bytes, shape: Sequence[int], dtype: int = FLOAT, *, op_name: bytes = b"c") -> bytes:
    """Return a dump file with one output."""
    dims = b"".join(field(1, length) for length in shape)
    output = field(1, dtype) + field(2, 2) + field(3, dims) + field(6, len(data)) + field(9, 1)
    message = field(1, b"2.0") + field(6, op_name) + field(3, output)
    return struct.pack("<Q", len(message)) + message + data


def compared(before: bytes, after: bytes) -> list[Difference]:
    with DumpFile.open(before) as old, DumpFile.open(after) as new:
        return compare(old, new)


def only(found: list[Difference]) -> Difference:
    (difference_,) = found
    return difference_


def test_same_bytes_do_not_differ() -> None:
    data = np.arange(6, dtype=np.float32).tobytes()

    assert compared(file_of(data, [2, 3]), file_of(data, [2, 3], op_name=b"a_To_c")) == []


def test_elements_are_counted_and_placed_by_dimension() -> None:
    old = np.zeros((4, 5, 6), np.float32)
    new = old.copy()
    new[1, 2, 3], new[3, 0, 1] = 1.5, -np.inf

    found = only(compared(file_of(old.tobytes(), old.shape), file_of(new.tobytes(), old.shape)))

    assert (found.elements, found.changed, found.padding) == (120, 2, 0)
    assert (found.first, found.last) == ((1, 2, 3), (3, 0, 1))
    assert found.values == (((1, 2, 3), 0.0, 1.5), ((3, 0, 1), 0.0, -np.inf))


def test_only_the_first_values_are_kept() -> None:
    old, new = np.zeros(100, np.float32), np.ones(100, np.float32)

    found = only(compared(file_of(old.tobytes(), [100]), file_of(new.tobytes(), [100])))

    assert found.changed == 100
    assert [value.position for value in found.values] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("old", "new"), [(0x00000000, 0x80000000), (0x7FC00000, 0x7FC00001)], ids=["zeros", "NaNs"]
)
def test_bits_count_not_values(old: int, new: int) -> None:
    before, after = (file_of(struct.pack("<I", bits), [1]) for bits in (old, new))

    assert only(compared(before, after)).changed == 1


def test_same_nans_do_not_differ() -> None:
    nan = file_of(struct.pack("<f", np.nan), [1])

    assert compared(nan, nan) == []


def test_padding_is_told_apart_from_elements() -> None:
    before, after = (file_of(bytes(8) + bytes([0, padding]) * 4, [2]) for padding in (0, 7))

    found = only(compared(before, after))

    assert (found.changed, found.padding, found.first) == (0, 4, None)


def test_bits_behind_the_last_packed_element_are_padding() -> None:
    before, after = (file_of(bytes([0, bits]), [3], INT4) for bits in (0, 0x10))

    found = only(compared(before, after))

    assert (found.elements, found.changed, found.padding) == (3, 0, 1)


def test_shape_that_does_not_fit_is_compared_by_bytes() -> None:
    found = only(compared(file_of(bytes(6), [100]), file_of(bytes(5) + b"\1", [100])))

    assert (found.elements, found.changed, found.first, found.values[0].after) == (6, 1, (5,), 1)


@pytest.mark.parametrize("cut", [0, 1])
def test_file_that_ends_early_is_to_blame(cut: int) -> None:
    files = [file_of(bytes(400), [100]), file_of(bytes(400), [100])]
    files[cut] = files[cut][:-1]
    opened = [DumpFile.open(data) for data in files]

    with pytest.raises(ComparisonError) as raised:
        compare(*opened)

    assert raised.value.dump is opened[cut]
    assert "ends inside output 0" in raised.value.problem


def test_file_with_a_slice_too_many_is_to_blame() -> None:
    with pytest.raises(ComparisonError) as raised:
        compared(file_of(bytes(4), [1]), file_of(bytes(4), [1]) + b"more")

    assert "4 bytes more than its header says" in raised.value.problem


def test_other_tensors_cannot_be_compared() -> None:
    with pytest.raises(ComparisonError) as raised:
        compared(file_of(bytes(4), [1]), file_of(bytes(8), [2]))

    assert raised.value.problem == "has other tensors than the dump before it"


def test_tensors_that_were_not_dumped_cannot_be_compared(dump_of: Callable[[str], DumpBuilder]) -> None:
    one = np.zeros(1, np.float32)
    absent = dump_of("c").input(one[:0]).output(one, address=0).build()

    with pytest.raises(ComparisonError) as raised:
        compared(absent, absent)

    assert raised.value.problem == "has no bytes of any tensor"


def test_large_files_do_not_have_to_fit_into_memory() -> None:
    old = np.zeros(24 << 20, np.uint8)
    new = old.copy()
    new[-1] = 9
    before, after = (zstandard.compress(file_of(it.tobytes(), it.shape, 4), 1) for it in (old, new))

    tracemalloc.start()
    found = only(compared(before, after))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.first == (old.size - 1,)
    assert peak < 12 << 20


@st.composite
def tensors(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """Return a data type, how many elements, and bytes for them with some padding."""
    number = draw(st.sampled_from(sorted(DTYPES)))
    count = draw(st.integers(1, 60))
    size = -(-count * DTYPES[number].bits // 8) + draw(st.integers(0, 9))
    return number, count, draw(st.binary(min_size=size, max_size=size))


def elements_of(number: int, count: int, data: bytes) -> list[int]:
    """Return the bits of each element, cut out of one large number."""
    dtype = DTYPES[number]
    if dtype.kernel is None:
        return list(data)
    width = 8 if dtype.bits < 8 and count == len(data) else dtype.bits
    return [int.from_bytes(data, "little") >> place * width & (1 << width) - 1 for place in range(count)]


@given(tensor=tensors(), flips=st.lists(st.integers(0, 10_000)), block=st.integers(16, 80), data=st.data())
@settings(max_examples=200, deadline=None)
def test_what_was_flipped_is_found_exactly(
    tensor: tuple[int, int, bytes], flips: list[int], block: int, data: Any
) -> None:
    number, count, old = tensor
    changed = bytearray(old)
    for flip in flips:
        changed[flip // 8 % len(old)] ^= 1 << flip % 8
    new = bytes(changed)
    before = file_of(old, [count], number)
    after = file_of(new, [count], number, op_name=b"a" * data.draw(st.integers(0, 20)))

    with patch.object(difference, "_BLOCK_BYTES", block):
        found = compared(before, zstandard.compress(after))

    assert isinstance(found, list)
    if old == new:
        assert found == []
        return
    pairs = zip(elements_of(number, count, old), elements_of(number, count, new), strict=True)
    places = [place for place, (was, is_) in enumerate(pairs) if was != is_]
    (one,) = found
    assert one.changed == len(places)
    assert (one.padding > 0) or places
    assert [value.position for value in one.values] == [(place,) for place in places[:4]]
    assert (one.first, one.last) == (((places[0],), (places[-1],)) if places else (None, None))
