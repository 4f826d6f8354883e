"""Areas of the terminal: a few lines that are rewritten in place while others are printed above them.

The cursor is never hidden, so that a process that is killed leaves a terminal that can be used.
"""

import os
from collections.abc import Sequence
from typing import Protocol, TextIO

from dumpstream.cli.screen.layout import COLOURING, cells_of

_SIZE = os.terminal_size((80, 24))


def size_of(stream: TextIO) -> os.terminal_size:
    """Return columns and lines of the terminal that *stream* is; a common size if it is not one."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # ValueError: closed, or without a descriptor
        return _SIZE
    return os.terminal_size((size.columns or _SIZE.columns, size.lines or _SIZE.lines))


class Area(Protocol):
    """Lines that can be drawn again and again."""

    def draw(self, lines: Sequence[str]) -> None:
        """Show *lines*, none wider than the terminal, instead of those before."""

    def erase(self) -> None:
        """Remove the lines, so that others can be printed there."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class LinesAtCursor:
    """An area below all that was printed; what is printed while it is drawn must come from this process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._widths: list[int] = []  #: of the lines that are drawn

    def draw(self, lines: Sequence[str]) -> None:
        """Show *lines* instead of those before."""
        text = self._erasure() + "\n".join(lines)
        self._widths = [cells_of(COLOURING.sub("", line)) for line in lines]
        self._write(text)

    def erase(self) -> None:
        """Remove the lines."""
        if text := self._erasure():
            self._widths = []
            self._write(text)

    close = erase

    def _erasure(self) -> str:
        if not self._widths:
            return ""
        # In a terminal that has become narrower, each line takes several.
        columns = size_of(self._stream).columns
        up = sum(max(-(-width // columns), 1) for width in self._widths) - 1
        return f"\r\x1b[{up}A\x1b[J" if up else "\r\x1b[J"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class LinesAtBottom:
    """An area at the bottom of the terminal, above which other processes may print, too.

    What they print scrolls only the lines above it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._size: os.terminal_size | None = None  #: of the terminal, for which
        self._rows = 0  #: lines are reserved

    def draw(self, lines: Sequence[str]) -> None:
        """Show *lines* instead of those before."""
        size, rows = size_of(self._stream), len(lines)
        text = ""
        if size != self._size or rows > self._rows:
            text = self._reservation(size, rows)
        lines = [""] * (self._rows - rows) + [*lines]
        first = size.lines - self._rows + 1
        drawn = "".join(f"\x1b[{first + number};1H\x1b[2K{line}" for number, line in enumerate(lines))
        self._write(f"{text}\x1b7{drawn}\x1b8")

    def erase(self) -> None:
        """Do nothing: what is printed scrolls above the lines."""

    def close(self) -> None:
        """Remove the lines, and let the whole terminal scroll again."""
        if self._size is not None:
            first = self._size.lines - self._rows + 1
            self._write(f"\x1b7\x1b[r\x1b[{first};1H\x1b[J\x1b8")
            self._size, self._rows = None, 0

    def _reservation(self, size: os.terminal_size, rows: int) -> str:
        """Return what keeps the last *rows* lines from scrolling, and the cursor out of them."""
        # A capture that was killed may have left a region, too.
        erased = "\x1b7\x1b[r\x1b8" + ("" if self._size is None else "\x1b[J")
        self._size, self._rows = size, rows
        # An index (ESC D) is a line feed that keeps the column. Setting the region moves the cursor.
        room = "\x1bD" * rows + f"\x1b[{rows}A"
        return f"{erased}{room}\x1b7\x1b[1;{max(size.lines - rows, 1)}r\x1b8"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
