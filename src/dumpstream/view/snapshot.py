"""Snapshot: a run at one moment, of which everything is read once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from dumpstream.system.location import Prefix
from dumpstream.view.details import Details, details_of
from dumpstream.view.scene import Progress, Scene, read_scene


class Snapshot:
    """The run at *path*; for several threads at once. Every method raises `DumpstreamError`."""

    def __init__(self, path: Path | Prefix, ranks: Sequence[int] = ()) -> None:
        self._path, self._ranks = path, ranks
        self._scene: Scene | None = None
        self._details: Details | None = None
        self._reading, self._examining = Lock(), Lock()

    def scene(self, progress: Progress = lambda *_: None) -> Scene:
        """Return what the map shows; calls *progress* while it is read."""
        with self._reading:
            if self._scene is None:
                self._scene = read_scene(self._path, self._ranks, progress=progress)
            return self._scene

    def details(self) -> Details:
        """Return what is known of single tensors."""
        with self._examining:
            if self._details is None:
                self._details = details_of(self.scene().subject)
            return self._details
