"""ManifestFile: the manifest in a directory, where a change costs what has changed.

A short manifest is replaced. Of a long one, which lists many processes, those that have changed are added to
a list of changes beside it, until that is as long as the manifest; then the manifest is replaced. A list of
changes belongs to the manifest with the same key, and to no other.
"""

import os
import secrets
from contextlib import suppress
from typing import Any

from dumpstream.archive.manifest import (
    CHANGES,
    Manifest,
    change_text,
    changes_title,
    state_of,
    write_manifest,
)
from dumpstream.system.nofollow import open_regular
from dumpstream.system.publishing import replace_file, write_all
from dumpstream.system.removal import remove_file

#: A shorter manifest is replaced as fast as a change is written.
_LONG_BYTES = 64 << 10


class ManifestFile:
    """The manifest in the directory *dir_fd*; every method blocks and raises `OSError`."""

    def __init__(self, dir_fd: int) -> None:
        self._dir_fd = dir_fd
        self._changes_fd = -1
        self._room = 0  # bytes that may still be added to the changes
        self._recorded: list[Any] = []  # the states of the processes

    def write(self, manifest: Manifest) -> None:
        """Record *manifest*; after a power cut or a kill, a reader finds this one or the one before."""
        if self._changes_fd < 0 or not self._add_changes(manifest):
            self.write_all(manifest, is_last=False)

    def write_all(self, manifest: Manifest, *, is_last: bool = True) -> None:
        """Replace the manifest; unless this *is_last*, changes may follow."""
        self.close()
        had_changes = manifest.changes is not None
        size = len(manifest.text())
        is_long = not is_last and not manifest.runs and size > _LONG_BYTES
        manifest.changes = secrets.token_hex(8) if is_long else None
        write_manifest(manifest, self._dir_fd)
        if manifest.changes is None:
            if had_changes:
                remove_file(CHANGES, self._dir_fd)
            return
        with suppress(OSError):  # the manifest has everything, and is replaced again next time
            replace_file(CHANGES, [changes_title(manifest.changes)], self._dir_fd)
            self._changes_fd = open_regular(CHANGES, os.O_WRONLY | os.O_APPEND, dir_fd=self._dir_fd)
            self._room = size
            self._recorded = [*map(state_of, manifest.processes)]

    def close(self) -> None:
        """Add no more changes; a second call does nothing."""
        if self._changes_fd >= 0:
            os.close(self._changes_fd)
            self._changes_fd = -1

    def _add_changes(self, manifest: Manifest) -> bool:
        """Add the processes that have changed, and return True; or do nothing, and return False."""
        known = len(self._recorded)
        if manifest.runs or len(manifest.processes) < known:
            return False
        states = [*map(state_of, manifest.processes)]
        lines = b"".join(
            [
                change_text(number, manifest.processes[number])
                for number, state in enumerate(states)
                if number >= known or state != self._recorded[number]
            ]
        )
        if len(lines) > self._room:
            return False
        try:
            write_all(self._changes_fd, lines)
            os.fdatasync(self._changes_fd)
        except OSError:
            self.close()  # the end may be torn
            raise
        self._room -= len(lines)
        self._recorded = states
        return True
