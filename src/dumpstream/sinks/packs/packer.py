"""Packer: puts small files into packs, which are stored when they are large or old enough."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import FileRefusedError, SinkError
from dumpstream.custody import Custody, Stage
from dumpstream.sinks import Stored, WholeFile
from dumpstream.sinks._frames import view_bytes
from dumpstream.sinks._workers import Workers
from dumpstream.sinks.packs.container import MOST_PACKED, PACK_BYTES, PACK_FILES, Pack
from dumpstream.sinks.packs.packedfile import PackedFile

_PACK_S = 5.0
_PACKS_IN_FLIGHT = 4


class PackTarget(NamedTuple):
    """Where one pack goes."""

    path: str  #: in the journal
    #: Stores it whole, or raises `SinkError`; returns its custody if it still has to be uploaded.
    store: Callable[[Buffer], Awaitable[Custody | None]]


class _Open(NamedTuple):
    pack: Pack
    target: PackTarget
    custody: Custody
    timer: asyncio.TimerHandle


class Packer:
    """Collects files in packs, in memory, and stores each pack as a whole.

    Until then its files are in custody: a kill loses them, and the journal does not name them yet.

    Args:
        workers: compress the files.
        open_target: begins the pack of that name.
        pack_bytes: the size at which a pack is stored, unless it has very many files before that,
        pack_s: or the age in seconds.
    """

    def __init__(
        self,
        workers: Workers,
        open_target: Callable[[str], Awaitable[PackTarget]],
        *,
        pack_bytes: int = PACK_BYTES,
        pack_s: float = _PACK_S,
    ) -> None:
        self._workers, self._open_target = workers, open_target
        self._pack_bytes, self._pack_s = pack_bytes, pack_s
        self.token = secrets.token_hex(4)  #: the names of its packs, and no others, begin with it
        self._number = 0
        self._open: _Open | None = None
        self._adding = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: SinkError | None = None

    async def put(
        self,
        files: Sequence[WholeFile],
        put_large: Callable[[Sequence[WholeFile]], Awaitable[list[Stored | SinkError]]],
    ) -> list[Stored | SinkError]:
        """Pack the small ones of *files*, give the others to *put_large*, and return where each is, in order.

        Waits while too many packs are being stored.
        """
        small: dict[int, PackedFile] = {}
        large: list[int] = []
        for index, (name, data) in enumerate(files):
            view = view_bytes(data)
            if len(view) <= MOST_PACKED:
                small[index] = PackedFile(name, view, self._workers.codec)
            else:
                large.append(index)
        with anyio.CancelScope(shield=True):
            await self._workers.compress([*small.values()])
        outcomes = dict(zip(small, await self._add([*small.values()]), strict=True))
        if large:
            outcomes |= zip(large, await put_large([files[index] for index in large]), strict=True)
        return [outcomes[index] for index in range(len(files))]

    async def _add(self, files: Sequence[PackedFile]) -> list[Stored | SinkError]:
        outcomes: list[Stored | SinkError] = []
        async with self._adding:
            for file in files:
                if file.outcome is not None:
                    outcomes.append(file.outcome)
                    continue
                try:
                    pack, target, custody, _ = self._open or await self._begin()
                except SinkError as exc:
                    outcomes.append(exc)
                    continue
                outcomes.append(file.put_into(pack, target.path)._replace(custody=custody))
                if pack.size >= self._pack_bytes or pack.entries >= PACK_FILES:
                    self._send()
        return outcomes

    async def aclose(self) -> None:
        """Store the last pack; raises `SinkError` if a pack could not be stored."""
        self._send()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._check()

    async def _begin(self) -> _Open:
        while len(self._tasks) >= _PACKS_IN_FLIGHT:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self._check()
        self._number += 1
        target = await self._open_target(f"{self.token}-{self._number:06}")
        timer = asyncio.get_running_loop().call_later(self._pack_s, self._send)
        self._open = _Open(Pack(), target, Custody(), timer)
        return self._open

    def _send(self) -> None:
        current, self._open = self._open, None
        if current is None:
            return
        current.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._store(current))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store(self, current: _Open) -> None:
        custody = current.custody
        try:
            waiting = await current.target.store(await run_sync(current.pack.finish))
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
