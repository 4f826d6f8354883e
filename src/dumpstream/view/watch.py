"""Watch: a run that may still grow, read again when it has changed, for several pages at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.reading.stored import State
from dumpstream.system.cache import open_cached
from dumpstream.system.location import Prefix
from dumpstream.view.details import Details, read_details
from dumpstream.view.scene import read_scene
from dumpstream.view.status import status_of

#: Changes when the same run would be packed otherwise.
_FORMAT = "view 1"
_LOOK_S = 1.0
#: Reading again may take this share of the time, so that a large run does not keep a core busy.
_SHARE = 0.25


class Watch:
    """What pages show of the run at *path*; `follow` keeps it up to date.

    What a page draws of a finished capture is kept in the cache, so that the second page is there at once.
    `prepare` then reads the run itself, while the first page is looked at.
    """

    def __init__(self, path: Path | Prefix, ranks: Sequence[int] = ()) -> None:
        self._path, self._ranks = path, ranks
        self.status: dict[str, Any] = status_of(path, ranks)
        self._shown = self.status["version"]
        self._details: Details | None = None
        self._packed = b""
        self._reading = anyio.Lock()
        self._changed = anyio.Event()
        self.shown = anyio.Event()  #: is set when a page has drawn the run

    @property
    def told(self) -> dict[str, Any]:
        """The status as pages are told it: its version is that of what they can ask for."""
        return {**self.status, "version": self._shown}

    @property
    def packed(self) -> bytes:
        """What a page draws now."""
        return self._packed

    def open(self, progress: Callable[[int, int], None] = lambda *_: None) -> None:
        """Read the run for the first time; raises `DumpstreamError`."""

        def packed() -> bytes:
            scene = read_scene(self._path, self._ranks, progress=progress)
            self._details = scene.details
            return scene.packed(self.told)

        def write(file: IO[bytes]) -> None:
            file.write(packed())

        if not self._shown or self.status["state"] != State.FINISHED:
            self._packed = packed()
            return
        fd = open_cached(f"{_FORMAT} {self._path} {sorted(self._ranks)}", self._shown, write)
        with os.fdopen(fd, "rb") as file:
            file.seek(0)  # the descriptor of a temporary file is where writing ended
            self._packed = file.read()

    async def details(self) -> Details:
        """Return what is known of single tensors; the first of several callers reads the run, if need be."""
        async with self._reading:
            if self._details is None:
                self._details = await run_sync(read_details, self._path, self._ranks, abandon_on_cancel=True)
            return self._details

    async def prepare(self) -> None:
        """Read the run as soon as a page is shown, and not before: the page is to be there at once."""
        await self.shown.wait()
        with suppress(DumpstreamError, OSError):  # the page that asks is told
            await self.details()

    async def changed(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Return the status as soon as it is another one than *seen*."""
        while (told := self.told) == seen:
            await self._changed.wait()
        return told

    async def follow(self) -> None:
        """Look every second whether the run has changed, for ever."""
        next_read = 0.0
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                status = await run_sync(status_of, self._path, self._ranks, abandon_on_cancel=True)
                if status["version"] != self._shown and monotonic() >= next_read:
                    started = monotonic()
                    await self._read_again(status)
                    next_read = monotonic() + (monotonic() - started) / _SHARE
            except (DumpstreamError, OSError) as exc:
                status = {**self.status, "problem": str(exc)}
            if status != self.status:
                self.status = status
                self._changed.set()
                self._changed = anyio.Event()

    async def _read_again(self, status: dict[str, Any]) -> None:
        scene = await run_sync(read_scene, self._path, self._ranks, abandon_on_cancel=True)
        self._packed = await run_sync(scene.packed, status)
        self._details, self._shown = scene.details, status["version"]
