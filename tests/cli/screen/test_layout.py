from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dumpstream.cli.screen.layout import (
    GAP,
    Column,
    cells_of,
    common_beginning,
    fit,
    shorten,
    shorten_number,
    wrap_path,
    wrap_words,
)

_columns = st.builds(
    Column,
    name=st.just("x"),
    numeric=st.booleans(),
    importance=st.integers(0, 5),
    least=st.none() | st.integers(1, 30),
    ample=st.integers(0, 12),
)
_yielding = st.builds(replace, _columns, yields=st.booleans())
_names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "M", "Z")), max_size=40)


@given(st.lists(st.tuples(_yielding, st.integers(1, 60)), min_size=1, max_size=12), st.integers(1, 200))
def test_what_is_shown_fits(columns: list[tuple[Column, int]], available: int) -> None:
    shown = fit([it for it, _ in columns], [width for _, width in columns], available, ample=True)

    assert shown
    assert list(shown) == sorted(shown)
    assert min(shown.values()) >= 1
    assert sum(shown.values()) + GAP * (len(shown) - 1) <= available


def test_columns_that_yield_are_left_out_before_a_text_is_shortened() -> None:
    columns = [Column(name="a", yields=True), Column(name="b"), Column(name="c", least=10, importance=1)]

    assert fit(columns, [5, 5, 40], 54) == {0: 5, 1: 5, 2: 40}
    assert fit(columns, [5, 5, 40], 53) == {1: 5, 2: 40}
    assert fit(columns, [5, 5, 40], 40) == {1: 5, 2: 33}


@given(st.lists(st.tuples(_columns, st.integers(1, 60)), min_size=2, max_size=12), st.integers(1, 200))
def test_nothing_is_left_out_before_something_less_important(
    columns: list[tuple[Column, int]], available: int
) -> None:
    shown = fit([it for it, _ in columns], [width for _, width in columns], available)

    left_out = [it.importance for place, (it, _) in enumerate(columns) if place not in shown]
    assert not left_out or max(left_out) <= min(columns[place][0].importance for place in shown)


def test_texts_are_shortened_before_columns_are_left_out() -> None:
    name, count = Column(name="name", least=10, importance=1), Column(name="count", numeric=True)

    assert fit([name, count], [40, 5], 50) == {0: 40, 1: 5}
    assert fit([name, count], [40, 5], 20) == {0: 13, 1: 5}
    assert fit([name, count], [40, 5], 16) == {0: 16}


@given(_names, st.integers(1, 50), st.sampled_from("…~"))
def test_shortened_text_fits_and_keeps_both_ends(text: str, width: int, mark: str) -> None:
    short = shorten(text, width, mark)

    assert cells_of(short) <= width
    marks = [place for place, letter in enumerate(short) if letter == mark]  # the text may have some, too
    assert short == text or any(
        text.startswith(short[:place]) and text.endswith(short[place + 1 :]) for place in marks
    )


@given(st.integers(0, 2**64) | st.floats(), st.integers(1, 24))
def test_shortened_number_fits_and_is_near(number: float, width: int) -> None:
    text = f"{number:.6g}" if isinstance(number, float) else str(number)

    short = shorten_number(text, width)

    assert len(short) <= max(width, 1)
    if len(text) <= width:
        assert short == text


def test_numbers_lose_digits_and_not_their_magnitude() -> None:
    assert shorten_number("51998", 3) == "51k"
    assert shorten_number("-1.23457e-05", 8) == "-1.2e-05"
    assert shorten_number("123456", 2) == "##"


@given(
    st.lists(_names, min_size=2, max_size=5), st.sampled_from(["model/layer/", "transformer_encoder_", ""])
)
def test_common_beginning_is_one_of_all_and_ends_at_a_separator(names: list[str], start: str) -> None:
    names = [start + name for name in names]

    found = common_beginning(names)

    assert all(name.startswith(found) for name in names)
    assert found.startswith(start)
    assert not found or found[-1] in "/_.-"


def test_beginnings_that_are_short_or_of_one_text_stay() -> None:
    assert common_beginning(["layer_1", "layer_2"]) == ""
    assert common_beginning(["model/layer/a"]) == ""
    assert common_beginning([]) == ""


def test_long_paths_are_wrapped_at_their_slashes() -> None:
    assert wrap_path("name below /tmp/one/two/three/", 20) == ["name below /tmp/one/", "two/three/"]
    assert wrap_path("name below one-component-that-is-too-long/", 12) == [
        "name below",
        "one-component-that-is-too-long/",
    ]


def test_lines_of_whole_words_count_no_colours_and_wide_characters_twice() -> None:
    green = "\x1b[32m6 complete\x1b[0m"

    assert wrap_words(f"12 files ({green}) in run", 22) == [f"12 files ({green})", "in run"]
    assert wrap_words("注意力 注意力", 12) == ["注意力", "注意力"]
    assert wrap_words("title  first second", 13, indent="       ") == ["title  first", "       second"]
    assert wrap_words("a word-that-is-too-long b", 4) == ["a", "word-that-is-too-long", "b"]
    assert wrap_words("", 4) == [""]
