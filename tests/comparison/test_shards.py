"""Parts of tensors on several ranks, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.sharding.mesh import Mesh
from dumpstream.comparison.sharding.rules import parse_shard_rules, read_shard_rules
from dumpstream.comparison.sharding.shards import Concatenated, ShardError, Summed
from dumpstream.comparison.sidetensor import Identity
from dumpstream.format.dtypes import DTYPES, DType


class _Blocks:
    """The elements of an array, in blocks of a few of them, all in the same buffer."""

    def __init__(self, array: NDArray[Any], block: int = 3) -> None:
        self._array, self._block = array, block
        self.dtype: DType = next(it for it in DTYPES.values() if it.numpy == array.dtype and it.table is None)
        self.shape = array.shape
        self.packed = False

    def blocks(self) -> Iterator[memoryview]:
        data = self._array.tobytes()
        size = self._block * self._array.itemsize
        for start in range(0, len(data), size):
            buffer = bytearray(data[start : start + size])
            yield memoryview(buffer)
            buffer[:] = b"\xee" * len(buffer)  # a block is valid until the next


def _array_of(elements: Elements) -> NDArray[Any]:
    data = b"".join(bytes(block) for block in elements.blocks())
    return np.frombuffer(data, elements.dtype.numpy).reshape(elements.shape)


def _identity(name: str = "op", io: str = "output", index: int = 0) -> Identity:
    return Identity(None, None, None, None, name, io, index, 0)


_SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@settings(max_examples=200)
@given(shape=_SHAPES, data=st.data(), kind=st.sampled_from(["<f4", "<f2", "<i8", "u1"]))
def test_parts_along_any_axis_make_the_whole(shape: tuple[int, ...], data: st.DataObject, kind: str) -> None:
    whole = np.arange(np.prod(shape), dtype=kind).reshape(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=3)))
    parts = [_Blocks(part, data.draw(st.integers(1, 7))) for part in np.split(whole, cuts, axis)]

    joined = Concatenated(parts, axis)

    assert joined.shape == shape
    assert np.array_equal(_array_of(joined), whole)


@given(shape=_SHAPES, count=st.integers(1, 4), kind=st.sampled_from(["<f4", "<f2", "<i4", "u1"]))
def test_parts_of_a_sum_are_added_and_rounded_once(shape: tuple[int, ...], count: int, kind: str) -> None:
    random = np.random.default_rng(1)
    parts = [(random.standard_normal(shape) * 50).astype(kind) for _ in range(count)]

    summed = _array_of(Summed([*map(_Blocks, parts)]))

    wide = np.float64 if kind.startswith("<f") else np.int64
    expected = np.sum([part.astype(wide) for part in parts], axis=0).astype(kind)
    assert np.array_equal(summed, expected)


def test_a_part_larger_than_a_block_is_joined_row_by_row() -> None:
    whole = np.arange(2 * 400_001, dtype="<f4").reshape(2, 400_001)
    parts = [_Blocks(part, 65_536) for part in np.split(whole, [150_000], 1)]

    assert np.array_equal(_array_of(Concatenated(parts, 1)), whole)


@pytest.mark.parametrize(
    ("shapes", "axis"), [([(2, 3), (2, 4)], 0), ([(2,), (2, 3)], 0), ([(2, 3), (2, 3)], 2), ([()], 0)]
)
def test_shapes_that_do_not_fit_are_refused(shapes: Sequence[tuple[int, ...]], axis: int) -> None:
    with pytest.raises(ShardError, match="shape"):
        Concatenated([_Blocks(np.zeros(shape, "<f4")) for shape in shapes], axis)


def test_parts_of_other_types_are_refused() -> None:
    with pytest.raises(ShardError, match="float16, float32"):
        Concatenated([_Blocks(np.zeros(2, "<f4")), _Blocks(np.zeros(2, "<f2"))], 0)


def test_elements_that_are_not_plain_numbers_are_not_added_up() -> None:
    with pytest.raises(ShardError, match="bool cannot be added up"):
        Summed([_Blocks(np.zeros(2, np.bool_))])


def test_a_part_that_ends_early_is_refused() -> None:
    class Short(_Blocks):
        def blocks(self) -> Iterator[memoryview]:
            yield memoryview(bytes(4))

    with pytest.raises(ShardError, match="ends before"):
        _array_of(Summed([Short(np.zeros(2, "<f4"))]))


def test_the_first_group_of_a_mesh_has_neighbouring_ranks() -> None:
    mesh = Mesh.parse("tp=2,dp=3")

    assert [mesh.coordinates(rank) for rank in range(mesh.ranks)] == [
        {"tp": tp, "dp": dp} for dp in range(3) for tp in range(2)
    ]


def test_a_rank_outside_the_mesh_is_refused() -> None:
    with pytest.raises(ValueError, match="has 4 ranks, and the run has a rank 4"):
        Mesh.parse("tp=2,dp=2").coordinates(4)


@pytest.mark.parametrize("text", ["", "tp", "tp=0", "tp=2,tp=2", "tp=2;dp=2", "=2", "tp=x"])
def test_a_mesh_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a mesh"):
        Mesh.parse(text)


def test_the_first_rule_that_matches_counts() -> None:
    rules = parse_shard_rules(
        [
            {"match": "*qkv*", "io": "output", "index": 0, "split": {"tp": 1}},
            {"match": "*qkv*", "sum": ["tp"], "replicated": ["dp"]},
        ]
    )

    assert rules.rule_for(_identity("layer/qkv")).split == {"tp": 1}
    assert rules.rule_for(_identity("layer/qkv", index=1)).sum == {"tp"}
    assert rules.rule_for(_identity("norm")).split == {}
    assert rules.groups == {"tp"}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, "not a list"),
        ([1], "rule 1 is not an object"),
        ([{"nam": "a"}], "unknown key nam"),
        ([{"split": {"tp": "1"}}], "wrong value of split"),
        ([{"split": {"tp": 1}, "sum": ["tp"]}], "two things of tp"),
        ([{"io": "x", "index": True}], "io, index"),
    ],
)
def test_rules_that_are_not_rules_are_refused(document: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_shard_rules(document)


def test_a_file_that_has_no_rules_is_refused_with_an_example(tmp_path: Any) -> None:
    path = tmp_path / "shards.json"
    path.write_text("nonsense")

    with pytest.raises(DumpstreamError, match="write for example"):
        read_shard_rules(path)
    with pytest.raises(DumpstreamError, match="cannot be read"):
        read_shard_rules(tmp_path / "missing.json")
