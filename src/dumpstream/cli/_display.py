"""How the commands show names, sizes and progress."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNITS = ("kB", "MB", "GB", "TB")
_STEP = 1000
_PROGRESS_S = 0.1


def printable(text: str) -> str:
    """Return *text* with everything that a terminal might take as a command, or cannot show, escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def print_error(error: Exception) -> None:
    """Print what *error* says, and in further lines what there is to know besides."""
    for line in (str(error), *getattr(error, "__notes__", ())):
        print(f"dumpstream: {printable(line)}", file=sys.stderr)


def size_text(size: int) -> str:
    """Return *size* bytes in at most four digits and a unit."""
    if size < _STEP:
        return f"{size} B"
    exponent = min((len(str(size)) - 1) // 3, len(_UNITS))
    return f"{size / _STEP**exponent:.1f} {_UNITS[exponent - 1]}"


def count_text(count: int, noun: str) -> str:
    """Return ``1 file``, ``2 files``, ``2 processes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def time_text(microseconds: int) -> str:
    """Return the time that is so many *microseconds* after the beginning of 1970."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} us since 1970"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def number_text(value: Any) -> str:
    """Return a number as it is shown: floats in six digits, a complex one in two parts."""
    if isinstance(value, complex):
        value = [value.real, value.imag]
    if isinstance(value, list):
        return "+".join(map(number_text, value)) + "j"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table_lines(
    names: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool]
) -> Iterator[str]:
    """Yield the lines of a table: the *names* of its columns and its *rows*, numbers to the right."""
    cells = [list(names), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "-"
    return printable(str(value))


class ProgressLine:
    """A line on the terminal that is rewritten in place; nothing at all if standard error is no terminal."""

    def __init__(self) -> None:
        self._shown = False
        self._next = 0.0 if sys.stderr.isatty() else float("inf")

    def show(self, text: str) -> None:
        """Replace the line, at most ten times a second."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + _PROGRESS_S
            self._shown = True
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
