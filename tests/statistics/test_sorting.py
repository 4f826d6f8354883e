from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpstream.statistics import sorting
from dumpstream.statistics.sorting import sort_blocks
from dumpstream.statistics.table import SortKey, sort_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

numbers = st.none() | st.just(math.nan) | st.integers(-2, 2) | st.floats(-2, 2) | st.just(2**70)
rows = st.lists(st.tuples(numbers, st.none() | st.text(max_size=2), st.integers()), max_size=30)
keys = st.lists(
    st.builds(SortKey, st.sampled_from(["max", "op_name"]), st.booleans()),
    min_size=1,
    max_size=2,
    unique=True,
)


def columns(found: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in found] for place, name in enumerate(("max", "op_name", "index"))}


@given(rows, keys, st.integers(1, 5), st.integers(1, 5))
def test_rows_on_disk_come_in_the_order_of_rows_in_memory(
    found: list[tuple[Any, ...]], by: list[SortKey], in_memory: int, at_once: int
) -> None:
    expected = sort_columns(columns(found), by)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_ROWS_IN_MEMORY", in_memory)
        patch.setattr(sorting, "_ROWS_AT_ONCE", at_once)
        blocks = [columns(found[start : start + 3]) for start in range(0, len(found), 3)]
        merged = [*sort_blocks(blocks, by)]

    for name, values in expected.items():
        assert repr([value for block in merged for value in block[name]]) == repr(values)


def test_memory_does_not_grow_with_the_rows() -> None:
    def blocks() -> Iterator[dict[str, list[Any]]]:
        for block in range(60):
            yield {"max": [float(-block * 10_000 - row) for row in range(10_000)], "index": [*range(10_000)]}

    tracemalloc.start()
    count = sum(len(block["max"]) for block in sort_blocks(blocks(), [SortKey("max")]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 600_000
    assert peak < 30 << 20
