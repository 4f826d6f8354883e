"""Layout: which columns of a table fit on the terminal, and how wide each is. Does no I/O."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from dumpstream.cli.screen.colour import Style

#: Between two columns.
GAP = 2

_LEAST_PATH, _LEAST_PREFIX = 4, 16
_SEPARATORS = "_.-"
_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")
_STEP = 1000
#: What changes the colour of text, and takes no columns.
COLOURING = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    text: Callable[[Any], str] = str  #: returns the text of a value, in printable characters
    numeric: bool = False
    repeats: bool = False  #: whether most values come again, and equal ones have the same text
    importance: int = 0  #: of columns that do not fit, the least important one is left out first
    yields: bool = False  #: whether it is left out before any text is shortened
    least: int | None = None  #: the columns to which its texts may be shortened
    at_least: int = 0  #: the columns that it always takes
    ample: int = 0  #: the columns that later texts may need, and get if there is space
    folds: bool = False  #: whether the beginning that all texts have in common is shown once
    style: Callable[[str], Style] | None = None  #: returns the style of a text


def cells_of(text: str) -> int:
    """Return how many columns *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - loads slowly, and few names need it

    return cell_len(text)


def fit(
    columns: Sequence[Column], widths: Sequence[int], available: int, *, ample: bool = False
) -> dict[int, int]:
    """Return the widths of those of *columns*, by their places, that fit into what is *available*.

    Args:
        columns: all of them.
        widths: what they would take.
        available: the columns of the terminal.
        ample: whether what is left is given to columns that may need it later.
    """
    shown = dict(enumerate(widths))
    yielding = [place for place, column in enumerate(columns) if column.yields]
    for place in sorted(yielding, key=lambda place: columns[place].importance):
        if len(shown) > 1 and _total(shown.values()) > available:
            del shown[place]
    least = {place: _least(columns[place], width) for place, width in shown.items()}
    while len(shown) > 1 and _total(least[place] for place in shown) > available:
        del shown[min(shown, key=lambda place: (columns[place].importance, place))]
    while (excess := _total(shown.values()) - available) > 0:
        place = max(shown, key=lambda place: shown[place] - least[place])
        if shown[place] <= least[place]:  # one column is left, and is too wide
            shown[place] = least[place] = max(available, 1)
            break
        # The one that has most to spare is shortened until another one has.
        others = [shown[it] - least[it] for it in shown if it != place]
        step = shown[place] - least[place] - max(others, default=0)
        shown[place] -= min(max(step, 1), excess)
    spare = available - _total(shown.values()) if ample else 0
    for place in sorted(shown, key=lambda place: -columns[place].importance):
        more = min(max(columns[place].ample - shown[place], 0), max(spare, 0))
        shown[place] += more
        spare -= more
    return shown


def _least(column: Column, width: int) -> int:
    return width if column.least is None else min(max(column.least, cells_of(column.name)), width)


def _total(widths: Iterable[int]) -> int:
    each = [*widths]
    return sum(each) + GAP * (len(each) - 1)


def shorten(text: str, width: int, mark: str) -> str:
    """Return *text* in at most *width* columns, with *mark* in place of what does not fit."""
    if cells_of(text) <= width:
        return text
    if width <= len(mark):
        return mark[:width]
    before = (width - len(mark)) * 2 // 3  # names begin with what tells most, and end with numbers
    beginning, end = text[:before], text[len(text) - (width - len(mark) - before) :]
    while cells_of(beginning) > before:  # characters that take two columns
        beginning = beginning[:-1]
    while cells_of(end) > width - len(mark) - before:
        end = end[1:]
    return beginning + mark + end


def shorten_number(text: str, width: int) -> str:
    """Return the number *text* in at most *width* columns, with fewer digits if it is longer."""
    if len(text) <= width:
        return text
    if text.isdecimal():
        number = int(text)
        for unit in _THOUSANDS:
            if number and len(short := f"{number}{unit}") <= width:
                return short
            number //= _STEP
        return "#" * width
    try:
        value = float(text)
    except ValueError:
        return text[:width]
    shorter = (f"{value:.{digits}g}" for digits in range(5, 0, -1))
    return next((it for it in shorter if len(it) <= width), "#" * width)


def common_beginning(texts: Sequence[str]) -> str:
    """Return what all *texts* begin with, up to a separator; nothing if it is short."""
    if len(texts) <= 1:
        return ""
    first, last = min(texts), max(texts)
    length = next((at for at, (one, other) in enumerate(zip(first, last)) if one != other), len(first))  # noqa: B905 - the shorter one ends it
    common = first[:length]
    path = common[: common.rfind("/") + 1]
    if len(path) >= _LEAST_PATH:
        return path
    prefix = common[: max(map(common.rfind, _SEPARATORS)) + 1]
    return prefix if len(prefix) >= _LEAST_PREFIX else ""


def wrap_path(text: str, available: int, *, indent: str = "") -> list[str]:
    """Return *text*, which may be coloured, in lines that end with a slash or a space.

    They are no longer than *available*, unless a name in a path is; *indent* is before all but the first.
    """
    return _joined(re.findall(r"[^/ ]*[/ ]+|[^/ ]+$", text), available, indent)


def wrap_words(text: str, available: int, *, indent: str = "") -> list[str]:
    """Return *text*, which may be coloured, in lines of whole words; *indent* is before all but the first.

    A word that is longer than *available* has a line of its own.
    """
    return _joined(re.findall(r"[^ ]* +|[^ ]+$", text), available, indent)


def _joined(words: Iterable[str], available: int, indent: str) -> list[str]:
    lines, is_empty = [""], True
    for word in words:
        if not is_empty and cells_of(COLOURING.sub("", lines[-1] + word.rstrip(" "))) > available:
            lines.append(indent)
        lines[-1] += word
        is_empty = False
    return [line.rstrip(" ") for line in lines]


def plain_lines(columns: Iterable[tuple[Column, int, Sequence[str]]], indent: str) -> str:
    """Return the lines of texts that are shown in full: each column with its width and its texts.

    Takes the whole columns at once: a list may have millions of lines.
    """
    *_, (last, _, texts) = shown = [*columns]
    before = indent  # what all lines have next
    cells: list[Iterable[str]] = []
    for column, width, values in shown:
        pad = str.rjust if column.numeric else str.ljust
        behind = "\n" if column is last else " " * GAP
        least = width if column.numeric or column is not last else 0
        if column.repeats:
            padded = {text: f"{before}{pad(text, least)}{behind}" for text in set(values)}
            if len(padded) == 1:
                (before,) = padded.values()
                continue
            cells.append(map(padded.__getitem__, values))
        elif least:
            cells.append([f"{before}{pad(text, least)}{behind}" for text in values])
        else:
            cells.append([f"{before}{text}{behind}" for text in values])
        before = ""
    if before:
        cells.append([before] * len(texts))
    lines = "".join(chain.from_iterable(zip(*cells, strict=True)))
    return lines if " \n" not in lines else "".join([f"{line.rstrip()}\n" for line in lines[:-1].split("\n")])
