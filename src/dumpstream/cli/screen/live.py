"""Live: a picture of work that goes on, drawn again and again until it is done."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Event, RLock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Protocol, TextIO

from dumpstream.cli.screen.area import Area, LinesAtBottom, LinesAtCursor, size_of
from dumpstream.cli.screen.options import Drawing, drawing, is_coloured

if TYPE_CHECKING:
    from rich.console import RenderableType

#: A command that is done sooner draws nothing, and does not load what draws.
FIRST_S = 0.3
FRAME_S = 0.125
LOG_S = 30.0
_LEAVING_S = 0.2


class Picture(Protocol):
    """What is drawn; the methods are not called by the thread that does the work."""

    def note(self, now: float) -> None:
        """Take a sample of the work for its rate."""

    def frame(self, columns: int, lines: int) -> RenderableType:
        """Return a picture that fits into *columns* and *lines*."""

    def text(self) -> str:
        """Return the picture as one line of text."""


class Live:
    """Shows *picture* on standard error, as the flags ask for.

    If *others_write*, other processes may print to the same terminal meanwhile.
    """

    def __init__(self, picture: Picture, *, others_write: bool = False) -> None:
        self._picture, self._others_write = picture, others_write
        self._stream: TextIO = sys.stderr
        self._lock = RLock()
        self._area: Area | None = None  #: unless lines are printed
        self._is_over = False
        self._lines: Sequence[str] = ()
        self._due = 0.0

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw in a thread while the block runs."""
        ended = Event()

        def draw() -> None:
            while not ended.wait(FRAME_S):
                self._draw()

        with self._opened() as is_shown:
            thread = Thread(target=draw, name="progress", daemon=True)
            if is_shown:
                thread.start()
            try:
                yield
            finally:
                ended.set()
                if is_shown:
                    thread.join()

    @asynccontextmanager
    async def drawn_beside(self) -> AsyncIterator[None]:
        """Draw in a task while the block runs."""
        import asyncio  # noqa: PLC0415 - loads slowly, and most commands do without

        async def draw() -> None:
            while True:
                await asyncio.sleep(FRAME_S)
                await asyncio.to_thread(self._draw)

        with self._opened() as is_shown:
            # Not a task group: it would wrap what the block raises.
            task = asyncio.create_task(draw()) if is_shown else None
            try:
                yield
            finally:
                if task is not None:
                    task.cancel()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Remove the picture while the block prints."""
        with self._lock:
            if self._area is None or self._is_over:
                yield
                return
            self._area.erase()
            try:
                yield
            finally:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                if self._lines:
                    self._area.draw(self._lines)

    def leave(self) -> None:
        """Remove the picture for good, without waiting long for a thread that draws."""
        self._is_over = True
        locked = self._lock.acquire(timeout=_LEAVING_S)
        try:
            if self._area is not None:
                with suppress(OSError, ValueError):
                    self._area.close()
        finally:
            if locked:
                self._lock.release()

    @contextmanager
    def _opened(self) -> Iterator[bool]:
        """Be on top of others while the block runs; give the block whether there is something to draw."""
        kind = drawing()
        if kind is Drawing.NONE:
            yield False
            return
        if kind is Drawing.BAR:
            self._area = (LinesAtBottom if self._others_write else LinesAtCursor)(self._stream)
        self._due = time.monotonic() + (LOG_S if self._area is None else FIRST_S)
        for live in _shown[-1:]:
            live._pause()  # noqa: SLF001 - it is of this class
        _shown.append(self)
        try:
            with self._stopping():
                yield True
        finally:
            self.leave()
            _shown.remove(self)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Have Ctrl-Z give the shell a terminal that scrolls as a whole, while the block runs.

        A line at the cursor does no harm to the shell, and needs no handler, which blocking work would delay.
        """

        def stop(*_: object) -> None:
            with self._lock:
                self._pause()
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTSTP)
                # It goes on here with SIGCONT.
                signal.signal(signal.SIGTSTP, stop)

        in_main = current_thread() is main_thread()  # which alone gets signals
        # It is ignored in a shell without job control.
        if not (
            isinstance(self._area, LinesAtBottom)
            and in_main
            and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        ):
            yield
            return
        signal.signal(signal.SIGTSTP, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _pause(self) -> None:
        """Remove the picture until it is drawn again."""
        with self._lock:
            self._lines = ()
            if self._area is not None:
                self._area.close()

    @property
    def _is_on_top(self) -> bool:
        return not self._is_over and _shown[-1:] == [self]

    def _draw(self) -> None:
        now = time.monotonic()
        self._picture.note(now)
        if now < self._due or not self._is_on_top:
            return
        with suppress(OSError, ValueError):  # the terminal is gone
            if self._area is None:
                self._due = now + LOG_S
                print(f"dumpstream: {self._picture.text()}", file=self._stream, flush=True)
                return
            if not _is_in_foreground(self._stream):
                return
            columns, lines = size_of(self._stream)
            drawn = _rendered(self._picture.frame(columns - 1, lines), columns - 1)
            with self._lock:
                if self._is_on_top:
                    self._lines = drawn
                    self._area.draw(drawn)


#: Those whose blocks run, of which the last is drawn.
_shown: list[Live] = []


@contextmanager
def above(stream: TextIO) -> Iterator[None]:
    """Let the block print to *stream* above what is drawn, if both are on a terminal."""
    if not _shown or not stream.isatty():
        yield
        return
    with _shown[-1].lifted():
        yield


def leave_terminal() -> None:
    """Remove what is drawn, because the process ends at once."""
    for live in _shown[-1:]:
        live.leave()


def _is_in_foreground(stream: TextIO) -> bool:
    """Whether the shell has not given the terminal to other processes, as it does for ``command &``."""
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # not the terminal of this session, or closed
        return True


def _rendered(picture: RenderableType, columns: int) -> list[str]:
    """Return the lines of *picture* with the sequences that colour them."""
    from rich.console import Console  # noqa: PLC0415 - loads slowly, and is only needed to draw

    coloured = is_coloured(sys.stderr)
    console = Console(
        file=sys.stderr,
        width=columns,
        force_terminal=True,
        color_system="standard" if coloured else None,
        no_color=not coloured,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(picture, end="")
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]
