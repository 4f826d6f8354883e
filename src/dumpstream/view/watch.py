"""Watch: a run that may still grow, read again when it has changed, for several pages at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import IO, Any

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.reading.stored import State
from dumpstream.system.cache import open_cached
from dumpstream.system.location import Prefix
from dumpstream.view.scene import Scene, read_scene
from dumpstream.view.status import status_of

#: Changes when the same run would be packed otherwise.
_FORMAT = "view 1"
_LOOK_S = 1.0
#: Reading again may take this share of the time, so that a large run does not keep a core busy.
_SHARE = 0.25


class Watch:
    """What pages show of the run at *path*; `follow` keeps it up to date.

    What a page draws of a finished capture is kept in the cache, so that the second page is there at once.
    The run itself is then read when a page first asks for a tensor.
    """

    def __init__(self, path: Path | Prefix, ranks: Sequence[int] = ()) -> None:
        self._path, self._ranks = path, ranks
        self.status: dict[str, Any] = status_of(path, ranks)
        self._shown = self.status["version"]
        self._scene: Scene | None = None
        self._packed = b""
        self._reading = anyio.Lock()
        self._changed = anyio.Event()

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

        def write(file: IO[bytes]) -> None:
            self._scene = read_scene(self._path, self._ranks, progress=progress)
            file.write(self._scene.packed(self.told))

        if not self._shown or self.status["state"] != State.FINISHED:
            self._scene = read_scene(self._path, self._ranks, progress=progress)
            self._packed = self._scene.packed(self.told)
            return
        fd = open_cached(f"{_FORMAT} {self._path} {sorted(self._ranks)}", self._shown, write)
        with os.fdopen(fd, "rb") as file:
            file.seek(0)  # the descriptor of a temporary file is where writing ended
            self._packed = file.read()

    def scene(self) -> Scene:
        """Return the run, which is read now if it was not; raises `DumpstreamError`."""
        if self._scene is None:
            self._scene = read_scene(self._path, self._ranks)
        return self._scene

    async def asked(self) -> Scene:
        """Return what `scene` does; several pages may ask at once."""
        async with self._reading:
            return await run_sync(self.scene)

    async def changed(self) -> dict[str, Any]:
        """Return the status as soon as it has changed."""
        await self._changed.wait()
        return self.told

    async def follow(self) -> None:
        """Look every second whether the run has changed, for ever."""
        next_read = 0.0
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                status = await run_sync(status_of, self._path, self._ranks)
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
        scene = await run_sync(read_scene, self._path, self._ranks)
        self._packed = await run_sync(scene.packed, status)
        self._scene, self._shown = scene, status["version"]
