"""Colours of words that say how well something went."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TextIO

from dumpstream.cli.screen.options import is_coloured

#: The words of verdicts, states and kinds of problems that are good or worth a look; all others are bad.
_GOOD = {"complete", "finished", "whole", "clean", "accepted", "dumped", "identical", "close"}
_FAIR = {
    *("unparsed", "running", "leftover", "removed", "single", "depends", "warning", "note", "waiting"),
    *("unmatched", "unreadable"),
}
_PLAIN = {"not", "-", ""}


class Style(StrEnum):
    """Colours of the terminal's own palette, which its user has chosen to be readable."""

    GOOD = "32"
    FAIR = "33"
    BAD = "31"
    STRONG = "1"
    FAINT = "2"
    PLAIN = ""


def style_of(word: str) -> Style:
    """Return the style of a verdict, a state, or a kind of problem."""
    if word in _PLAIN:
        return Style.PLAIN
    return Style.GOOD if word in _GOOD else Style.FAIR if word in _FAIR else Style.BAD


def styled(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return *text* as *stream*, by default standard output, is to show it."""
    if not style or not text or not is_coloured(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def verdict(word: str, width: int = 0) -> str:
    """Return a verdict, a state, or a kind of problem in its colour, padded to *width*."""
    return styled(word, style_of(word)) + " " * (width - len(word))
