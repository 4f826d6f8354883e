"""Watch: a run that may still grow, read again when it has changed, for several pages at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.system.location import Prefix
from dumpstream.view.scene import Scene, read_scene
from dumpstream.view.status import status_of

_LOOK_S = 1.0
#: Reading again may take this share of the time, so that a large run does not keep a core busy.
_SHARE = 0.25


class Watch:
    """The latest scene and status of the run at *path*; `follow` keeps them up to date."""

    def __init__(self, path: Path | Prefix, ranks: Sequence[int], scene: Scene) -> None:
        self._path, self._ranks = path, ranks
        self.scene = scene
        self.status: dict[str, Any] = status_of(path, ranks)
        self._shown = self.status["version"]
        self._packed: bytes | None = None
        self._changed = anyio.Event()

    @classmethod
    def open(
        cls, path: Path | Prefix, ranks: Sequence[int], progress: Callable[[int, int], None]
    ) -> Watch:
        """Read the run for the first time; raises `DumpstreamError`."""
        return cls(path, ranks, read_scene(path, ranks, progress=progress))

    async def packed(self) -> bytes:
        """Return what a page draws now."""
        if self._packed is None:
            scene, status = self.scene, {**self.status, "version": self._shown}
            self._packed = await run_sync(scene.packed, status)
        return self._packed

    async def changed(self) -> dict[str, Any]:
        """Return the status as soon as it has changed."""
        await self._changed.wait()
        return self.told

    @property
    def told(self) -> dict[str, Any]:
        """The status as pages are told it: its version is that of the scene, which they can ask for."""
        return {**self.status, "version": self._shown}

    async def follow(self) -> None:
        """Look every second whether the run has changed, for ever."""
        next_read = 0.0
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                status = await run_sync(status_of, self._path, self._ranks)
                if status["version"] != self._shown and monotonic() >= next_read:
                    started = monotonic()
                    scene = await run_sync(read_scene, self._path, self._ranks)
                    next_read = monotonic() + (monotonic() - started) / _SHARE
                    self.scene, self._shown, self._packed = scene, status["version"], None
            except (DumpstreamError, OSError) as exc:
                status = {**self.status, "problem": str(exc)}
            if status != self.status:
                self.status = status
                self._changed.set()
                self._changed = anyio.Event()
