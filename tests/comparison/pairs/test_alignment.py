"""Two sequences are aligned: what is found ascends, is equal, and is as long as it can be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dumpstream.comparison.pairs.alignment import align

items = st.lists(st.integers(0, 6), max_size=30)


@given(items, items)
def test_places_ascend_and_items_are_equal(mine: list[int], golden: list[int]) -> None:
    found = [*align(mine, golden)]
    assert all(mine[place] == golden[other] for place, other in found)
    found.sort()
    for (before, other_before), (behind, other_behind) in pairwise(found):
        assert before < behind
        assert other_before < other_behind


@given(items)
def test_a_sequence_is_all_aligned_with_itself(mine: list[int]) -> None:
    assert sorted(align(mine, mine)) == [(place, place) for place in range(len(mine))]


@given(items, st.integers(0, 30), st.integers(0, 6))
def test_what_was_put_in_is_left_out(mine: list[int], place: int, item: int) -> None:
    place = min(place, len(mine))
    golden = [*mine[:place], item, *mine[place:]]
    assert len([*align(mine, golden)]) == len(mine)


def test_without_items_that_both_have_once_the_longest_is_found() -> None:
    mine, golden = [1, 2, 1, 2, 3, 3], [2, 1, 3, 3, 1, 2, 2, 1]
    assert len([*align(mine, golden)]) == 4


def test_many_equal_items_take_little_time() -> None:
    # Far more than the longest common subsequence could be found of.
    found = [*align([1, 2] * 50_000 + [3], [2, 1, 1] * 50_000)]
    assert len(found) > 50_000


def test_nothing_is_aligned_with_nothing() -> None:
    assert [*align([], [1, 2])] == []
    assert [*align([3], [1, 2])] == []
