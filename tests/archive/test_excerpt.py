from __future__ import annotations

import json
import os

import pytest

from dumpstream.archive.excerpt import excerpt, excerpt_words

_MOST = 100


def written(value: object) -> int:
    """Return how many bytes a manifest has for *value*."""
    return len(json.dumps(value, indent=2))


@pytest.mark.parametrize("text", ["", "short", "x" * _MOST, "\udcff" * (_MOST // 6), "é" * (_MOST // 6)])
def test_text_that_fits_stays_as_it_is(text: str) -> None:
    assert excerpt(text, _MOST) == text


@pytest.mark.parametrize("character", ["x", "\udcff", "\n", '"', "\0", "é", "\U0001f600"])
def test_long_text_is_cut_to_what_json_writes_for_it(character: str) -> None:
    short = excerpt(character * 1000, _MOST)

    assert _MOST - 12 <= written(short) - 2 <= _MOST
    assert short == f"{character * (len(short) - 3)}..."


def test_words_that_fit_stay_as_they_are() -> None:
    words = ["python", "train.py", "--name=\udcff", ""]

    assert excerpt_words([*map(os.fsencode, words)], 200) == words


@pytest.mark.parametrize(
    ("words", "left"),
    [(["x" * 1000], 1000), (["a", "\udcff" * 1000], 1001), ([""] * 4096, 0), (["ab"] * 4096, 8192)],
)
def test_a_long_command_line_ends_with_what_is_left_out(words: list[str], left: int) -> None:
    *kept, mark = excerpt_words([*map(os.fsencode, words)], _MOST)

    assert words[: len(kept) - 1] == kept[:-1]
    assert words[len(kept) - 1].startswith(kept[-1])
    assert mark == f"... ({left - sum(map(len, kept))} more bytes)"
    assert written(kept) <= _MOST + 20
