"""Excerpts: the beginning of text that another process chose, so that it cannot make a manifest long."""

import os
from collections.abc import Sequence
from itertools import accumulate
from json.encoder import encode_basestring_ascii as quote

_QUOTES = 2
#: What a word costs in the manifest beside its text: its quotes, its comma and its own line.
_PER_WORD = 16


def excerpt(text: str, most: int) -> str:
    """Return *text*, or its beginning and ``...`` if JSON writes more than *most* bytes for it."""
    kept = _fitting(text, most)
    return text if len(kept) == len(text) else f"{_fitting(text, most - 3)}..."


def excerpt_words(words: Sequence[bytes], most: int) -> list[str]:
    """Return *words*, or those that JSON writes in about *most* bytes, and a mark with what is left out."""
    kept: list[str] = []
    for number, word in enumerate(words):
        most -= _PER_WORD
        text = os.fsdecode(word)
        beginning = _fitting(text, max(most, 0))
        most -= len(quote(beginning))
        if len(beginning) < len(text) or most < 0:
            left = sum(map(len, words[number:])) - len(os.fsencode(beginning))
            return [*kept, beginning, f"... ({left} more bytes)"]
        kept.append(text)
    return kept


def _fitting(text: str, most: int) -> str:
    """Return as much of the beginning of *text* as JSON writes in *most* bytes."""
    beginning = text[:most]
    if len(quote(beginning)) - _QUOTES <= most:
        return beginning
    ends = accumulate(len(quote(character)) - _QUOTES for character in beginning)
    return beginning[: sum(end <= most for end in ends)]
