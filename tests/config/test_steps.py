from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.config import BadStep, Steps, parse_steps

ranges = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ends: (min(ends), max(ends)))


def test_numbers_and_ranges_are_read() -> None:
    steps, bad = parse_steps("0|3-5|10")

    assert steps == Steps(((0, 0), (3, 5), (10, 10)))
    assert bad == ()
    assert [step for step in range(12) if step in steps] == [0, 3, 4, 5, 10]


def test_no_text_means_every_step() -> None:
    steps, bad = parse_steps("")

    assert bad == ()
    assert 123456 in steps
    assert steps.count is None


@pytest.mark.parametrize(
    "item", ["x", "", " 1", "1 ", "-1", "1-", "1-2-3", "+1", "1.0", "0x1", "1,2", "\u0661", "1\n", "1--2"]
)
def test_what_is_no_number_is_told_with_its_place(item: str) -> None:
    steps, bad = parse_steps(f"7|{item}|9")

    assert bad == (BadStep(1, item, "is neither a number nor a range of two numbers"),)
    assert steps.ranges == ((7, 7), (9, 9))


def test_a_range_that_ends_before_it_begins_is_told() -> None:
    _, bad = parse_steps("5-3")

    assert bad == (BadStep(0, "5-3", "ends before it begins"),)


def test_a_trailing_bar_is_an_empty_item() -> None:
    _, bad = parse_steps("1|")

    assert [(item.index, item.text) for item in bad] == [(1, "")]


def test_numbers_beyond_counting_are_the_largest_number() -> None:
    steps, bad = parse_steps("1-" + "9" * 5000)

    assert bad == ()
    assert steps.ranges == ((1, 2**63 - 1),)


def test_leading_zeros_do_not_count() -> None:
    steps, _ = parse_steps("0" * 30 + "7")

    assert steps.ranges == ((7, 7),)


@settings(deadline=None, max_examples=200)
@given(st.lists(ranges, min_size=1, max_size=8))
def test_what_is_written_is_contained_and_counted_once(spans: list[tuple[int, int]]) -> None:
    steps, bad = parse_steps("|".join(f"{first}-{last}" for first, last in spans))

    expected = {step for first, last in spans for step in range(first, last + 1)}
    assert bad == ()
    assert {step for step in range(60) if step in steps} == expected
    assert steps.count == len(expected)


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="0123456789-| x", max_size=20))
def test_every_item_is_either_read_or_told(text: str) -> None:
    steps, bad = parse_steps(text)

    assert len(steps.ranges) + len(bad) == (len(text.split("|")) if text else 0)
