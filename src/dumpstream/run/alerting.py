"""Alerting: what is bad in a run, told in its journal and to those who subscribe, while it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from time import monotonic

import anyio
from anyio.to_thread import run_sync

from dumpstream.analysis.modes import known_settings
from dumpstream.archive.journal import Lines
from dumpstream.archive.manifest import Configured
from dumpstream.archive.rows import timestamp
from dumpstream.diagnosis.alerts import Alert, Lookout
from dumpstream.diagnosis.badness import Badness
from dumpstream.stages.notices import Notices

#: How long the files that belong to a bad one have for coming, before it is judged.
_GATHER_S = 0.5
#: The share of the time that judging may take, beside one judgement for the first bad file of each device.
_SHARE = 0.02

_log = logging.getLogger(__name__)


class Alerting:
    """Looks for bad values in a run, and tells each once."""

    def __init__(self, look_for: Iterable[str], notices: Notices) -> None:
        self.told: list[Alert] = []  #: so far
        self._notices = notices
        self._changed = anyio.Event()
        self._ended = False
        self._turn = anyio.Lock()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self._wake)
        self.lookout = Lookout(map(Badness, look_for), wake)  #: hears what the sinks measure

    def configure(self, configured: Iterable[Configured]) -> None:
        """Heed the dump configurations of the run."""
        self.lookout.configure(known_settings(configured))

    async def run(self, journal: Lines) -> None:
        """Tell what is found, until `finish` is called."""
        pause = _GATHER_S
        while not self._ended:
            await self._changed.wait()
            await self._gather(pause)
            begun = monotonic()
            await self._judge(journal)
            pause = max(_GATHER_S, (monotonic() - begun) / _SHARE)

    async def _gather(self, pause: float) -> None:
        """Let files come for *pause* seconds, or less after the first bad one of a device."""
        deadline, pressed = monotonic() + pause, False
        while not self._ended:
            if self.lookout.pressing and not pressed:
                deadline, pressed = min(deadline, monotonic() + _GATHER_S), True
            self._changed = anyio.Event()
            with anyio.move_on_after(deadline - monotonic()) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught:
                return

    async def finish(self, journal: Lines) -> None:
        """Tell the rest; nothing more is measured."""
        self._ended = True
        self._wake()
        await self._judge(journal)

    async def _judge(self, journal: Lines) -> None:
        with anyio.CancelScope(shield=True):  # what was found counts as told
            async with self._turn:
                found = await run_sync(self._find) if self.lookout.due else ()
            for alert in found:
                self.told.append(alert)
                journal.add(alert.as_row(timestamp()).to_line())
                self._notices.offer(alert)

    def _find(self) -> Sequence[Alert]:
        try:
            return self.lookout.judge()
        except Exception as exc:  # noqa: BLE001 - the capture goes on, whatever a dump does to its alerts
            _log.warning("the capture is not searched for bad values any more: %r", exc)
            self.lookout.stop()
            return ()

    def _wake(self) -> None:
        self._changed.set()
