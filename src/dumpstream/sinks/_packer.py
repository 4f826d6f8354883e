"""Packer: small files into packs that are stored when they are large or old enough."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dumpstream._errors import FileRefusedError, SinkError
from dumpstream.custody import Custody, Stage
from dumpstream.names import clean_name
from dumpstream.sinks import Stored
from dumpstream.sinks._pack import MOST_ENTRIES, Member, Pack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from typing_extensions import Buffer

    from dumpstream.sinks._frames import Frames

#: Larger files are not packed.
PACKED_BYTES = 1 << 20

_PACK_BYTES = 16 << 20
_PACK_S = 5.0
_PACKS_IN_FLIGHT = 2


class PackTarget(Protocol):
    """Where one pack goes."""

    @property
    def path(self) -> str:
        """What the journal calls it."""

    async def store(self, data: Buffer) -> Custody | None:
        """Store it, whole or not at all; return what it is in if it is safe but not there yet.

        Raises:
            SinkError: it is not stored.
        """


class _Open(NamedTuple):
    pack: Pack
    target: PackTarget
    custody: Custody
    timer: asyncio.TimerHandle


class Packer:
    """Collects files in packs, in memory, and stores a pack as a whole.

    Until then its files are in custody: a kill loses them, and nothing has said that they were there.

    Args:
        open_target: begins the pack of a name.
        pack_bytes: a pack is stored when it has so many bytes,
        pack_s: or after so many seconds.
    """

    def __init__(
        self,
        open_target: Callable[[str], Awaitable[PackTarget]],
        *,
        pack_bytes: int = _PACK_BYTES,
        pack_s: float = _PACK_S,
    ) -> None:
        self._open_target = open_target
        self._pack_bytes, self._pack_s = pack_bytes, pack_s
        self._token = secrets.token_hex(4)
        self._number = 0
        self._open: _Open | None = None
        self._adding = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: SinkError | None = None

    async def replace(
        self, outcomes: list[Stored | SinkError], packed: Mapping[int, Frames], names: Mapping[int, str]
    ) -> None:
        """Pack files, and write into *outcomes* where they are; waits while enough packs are on their way.

        Args:
            outcomes: what became of all files when they were compressed.
            packed: the frames of those to be packed, by their index.
            names: of the same, as the runtime gave them.
        """
        async with self._adding:
            for index, frames in packed.items():
                outcome = outcomes[index]
                if isinstance(outcome, Stored):
                    try:
                        outcomes[index] = await self._add(names[index], frames, outcome)
                    except SinkError as exc:
                        outcomes[index] = exc

    async def _add(self, name: str, frames: Frames, compressed: Stored) -> Stored:
        current = self._open or await self._begin()
        member = Member("/".join(clean_name(name)), frames.take(), frames.bytes, frames.crc)
        start = current.pack.add(member)
        if current.pack.size >= self._pack_bytes or current.pack.entries >= MOST_ENTRIES:
            self._send(current)
        return compressed._replace(path=current.target.path, start=start, custody=current.custody)

    async def aclose(self) -> None:
        """Store what is open.

        Raises:
            SinkError: a pack could not be stored.
        """
        if self._open is not None:
            self._send(self._open)
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._check()

    async def _begin(self) -> _Open:
        while len(self._tasks) >= _PACKS_IN_FLIGHT:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self._check()
        self._number += 1
        target = await self._open_target(f"{self._token}-{self._number:06}")
        timer = asyncio.get_running_loop().call_later(self._pack_s, self._send_if_open, self._number)
        self._open = _Open(Pack(), target, Custody(), timer)
        return self._open

    def _send_if_open(self, number: int) -> None:
        if self._open is not None and self._number == number:
            self._send(self._open)

    def _send(self, current: _Open) -> None:
        self._open = None
        current.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._store(current))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store(self, current: _Open) -> None:
        custody = current.custody
        try:
            waiting = await current.target.store(b"".join(current.pack.finish()))
        except FileRefusedError as exc:
            custody.advance(Stage.LOST, exc.cause)
        except SinkError as exc:
            self._error = self._error or exc
            custody.advance(Stage.LOST)
        else:
            if waiting is None:
                custody.advance(Stage.STORED)
            else:
                custody.advance(Stage.KEPT)
                waiting.when(Stage.STORED, lambda: custody.advance(Stage.STORED))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
