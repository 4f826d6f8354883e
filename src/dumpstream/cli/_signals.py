"""What signals do to the commands that run an event loop."""

import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from dumpstream.capture import Capture
from dumpstream.cli._display import say
from dumpstream.cli._report import print_waiting
from dumpstream.objectstore.patience import ABORT_S
from dumpstream.outside.collector import Collector
from dumpstream.outside.command import Command

#: The signals that ask a process to end.
ENDING: Final = (signal.SIGINT, signal.SIGTERM)


@asynccontextmanager
async def obeying(
    numbers: Iterable[signal.Signals], obey: Callable[[signal.Signals], bool]
) -> AsyncIterator[TaskGroup]:
    """Call *obey* with every signal of *numbers* that comes while the block runs.

    Once it returns False, the next SIGINT or SIGTERM ends the process. Gives the block a task group, whose
    tasks are cancelled at the end. What the block raises is not wrapped in a group.
    """
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_obey, numbers, obey)
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _obey(
    numbers: Iterable[signal.Signals],
    obey: Callable[[signal.Signals], bool],
    *,
    task_status: TaskStatus[None],
) -> None:
    with anyio.open_signal_receiver(*_not_ignored(numbers)) as received:
        task_status.started()
        async for number in received:
            if not obey(number):
                break
    for number in _not_ignored(ENDING):
        signal.signal(number, signal.SIG_DFL)


def _not_ignored(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return those of *numbers* that do not have to be ignored, as nohup and background jobs ask for."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


class CaptureSignals:
    """What signals do to a capture.

    The first finishes the capture. The next one aborts it, and so does one before the capture has begun.
    While a command runs, signals go to the command.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self.command: Command | None = None  #: while it runs
        self._numbers = numbers
        self._scope = anyio.CancelScope()
        self._capture: Capture | Collector | None = None
        self._finishing = False

    @asynccontextmanager
    async def obeyed(self) -> AsyncIterator[TaskGroup]:
        """Obey signals while the block runs; aborting cancels the block, and nothing is raised."""
        with self._scope:
            async with obeying(self._numbers, self._obey) as tasks:
                yield tasks

    def begin(self, capture: Capture | Collector, stop: Callable[[], None]) -> None:
        """Finish *capture* by *stop*, which ends what it captures, from now on."""
        self._capture, self._stop = capture, stop

    def tell_abort(self, spill: Path | None) -> bool:
        """Return whether the capture was aborted; if so, say it, and how to upload what waits in *spill*."""
        if self._scope.cancelled_caught:
            say("aborted; what was finished stays")
            if self._capture is not None:
                print_waiting(self._capture.report, spill, file=sys.stderr)
        return self._scope.cancelled_caught

    def _obey(self, number: signal.Signals) -> bool:
        if self.command is not None:
            self.command.forward(number)
        elif self._capture is None or self._finishing:
            if self._capture is not None:
                self._capture.hurry(ABORT_S)
            self._scope.cancel()
        else:
            self._finishing = True
            self._stop()
            self._capture.hurry()
            say("finishing what has come; again to abort")
        return True
