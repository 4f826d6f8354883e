"""Progress of work whose end may be known: how much is done, how fast, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from dumpstream._errors import DumpstreamError
from dumpstream.cli._display import count_text, size_text
from dumpstream.cli.screen.live import Live
from dumpstream.cli.screen.pace import WINDOW_S, Pace, duration_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_COLUMNS = 40
_LEAST_BAR_COLUMNS = 8
_PADDING = 2
_STYLES = {"percent": "bold", "rate": "cyan", "time": "dim"}
#: What is left out of a line that is too long, in this order.
_DISPENSABLE = ("count", "size", "rate", "time")


class _Amount(NamedTuple):
    """How much, in things and in bytes; 0 if it is not known."""

    things: int = 0
    size: int = 0


class Progress:
    """The progress of *doing* something, in *noun*s and bytes; shown while the block runs.

    *count_all* returns what `expect` takes. It is called in another thread, and only if the work takes long.
    The rate is that of the last *window_s* seconds.
    """

    def __init__(
        self,
        doing: str,
        noun: str = "file",
        *,
        count_all: Callable[[], tuple[int, int]] | None = None,
        window_s: float = WINDOW_S,
    ) -> None:
        self._doing, self._noun = doing, noun
        self._count_all = count_all
        # Each is replaced as a whole, because a thread reads them.
        self._total, self._done = _Amount(), _Amount()
        self._pace = Pace(window_s)
        self._started = time.monotonic()
        self._stack = ExitStack()
        self._async_stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(Live(self).drawn())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def __aenter__(self) -> Self:
        await self._async_stack.enter_async_context(Live(self).drawn_beside())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._async_stack.aclose()

    def expect(self, count: int, size: int = 0) -> None:
        """Say how much there will be in all; *size* is 0 if it is not known."""
        self._total = _Amount(count, size)

    def show(self, count: int, size: int = 0) -> None:
        """Say how much is done."""
        self._done = _Amount(count, size)

    def show_size(self, size: int) -> None:
        """Say how many bytes are done, where things are not counted."""
        self._done = _Amount(0, size)

    def note(self, now: float) -> None:
        """Take a sample for the rate."""
        if self._count_all is not None and any(self._done):
            count_all, self._count_all = self._count_all, None
            with suppress(DumpstreamError, OSError):  # the work itself will tell
                self.expect(*count_all())
        self._pace.note(now, self._measured[0])

    @property
    def fraction(self) -> float | None:
        """How much of all is done; None if that is not known."""
        done, total = self._measured
        return min(done / total, 1.0) if total else None

    def text(self) -> str:
        """Return all of it in one line."""
        return f"{self._doing}: {', '.join(part.strip() for part in self._parts().values())}"

    def frame(self, columns: int, lines: int) -> RenderableType:  # noqa: ARG002 - it is one line
        """Return one line: what fits of it, with a bar if the end is known."""
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - loads slowly
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        fraction, parts = self.fraction, self._parts()
        needed = 0 if fraction is None else _LEAST_BAR_COLUMNS + _PADDING
        for name in _DISPENSABLE:
            if self._columns(parts) + needed > columns:
                parts.pop(name, None)
        row = Table.grid(padding=(0, _PADDING, 0, 0))
        cells: list[RenderableType] = [Text(self._doing, "bold", no_wrap=True, overflow="ellipsis")]
        room = columns - self._columns(parts) - _PADDING
        if fraction is not None and room >= _LEAST_BAR_COLUMNS:
            bar = ProgressBar(
                total=1.0,
                completed=fraction,
                width=min(room, _BAR_COLUMNS),
                complete_style="green",
                finished_style="green",
            )
            cells.append(bar)
        cells += [Text(part, _STYLES.get(name, ""), no_wrap=True) for name, part in parts.items()]
        row.add_row(*cells)
        return row

    @property
    def _in_bytes(self) -> bool:
        """Whether bytes tell better than things how much is done."""
        return bool(self._total.size or not self._total.things)

    @property
    def _measured(self) -> tuple[int, int]:
        """How much is done, and of how much."""
        if self._in_bytes:
            return self._done.size, self._total.size
        return self._done.things, self._total.things

    def _columns(self, parts: dict[str, str]) -> int:
        return len(self._doing) + sum(len(part) + _PADDING for part in parts.values())

    def _parts(self) -> dict[str, str]:
        done, total, fraction = self._done, self._total, self.fraction
        parts: dict[str, str] = {}
        if fraction is not None:
            parts["percent"] = f"{int(100 * fraction):3} %"
        if done.things or total.things:
            of = f"{done.things} of " if total.things else ""
            parts["count"] = of + count_text(total.things or done.things, self._noun)
        if done.size or total.size:
            parts["size"] = size_text(done.size) + (f" of {size_text(total.size)}" if total.size else "")
        rate = self._pace.per_second
        if rate is not None and (done.size or not self._in_bytes):
            slow = 0 < rate < 1
            number = f"{rate:.1g}" if slow else f"{rate:.0f}"
            parts["rate"] = f"{size_text(int(rate))}/s" if self._in_bytes else f"{number} {self._noun}s/s"
        left = self._pace.seconds_left(*self._measured) if fraction is not None else None
        if left is not None:
            parts["time"] = f"{duration_text(left)} left"
        elif fraction is None:
            parts["time"] = duration_text(time.monotonic() - self._started)
        return parts
