"""Growing packs: packs of a directory, which have every file as soon as it is stored."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from dumpstream._errors import SinkError
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks.packs.container import PACK_BYTES, PACK_FILES, Pack
from dumpstream.sinks.packs.packedfile import PackedFile
from dumpstream.system.tree import Draft, Tree


class GrowingPacks:
    """Appends small files to packs in *tree*, many with one write.

    A pack has its name from the beginning, because the lines of its files name it while it grows. Its
    directory, which only other programs need, is written at its end. Every method blocks, and several threads
    may call them.
    """

    def __init__(self, tree: Tree, *, pack_bytes: int = PACK_BYTES) -> None:
        self._tree, self._pack_bytes = tree, pack_bytes
        self._token = secrets.token_hex(4)  # the names of its packs, and no others, begin with it
        self._number = 0
        self._pack = Pack()
        self._file: Draft | None = None
        self._path = ""
        self._error: SinkError | None = None
        self._lock = Lock()

    def add(self, files: Sequence[PackedFile]) -> None:
        """Append *files*, which are compressed, and give each of them its outcome."""
        files = [file for file in files if file.outcome is None]
        with self._lock:
            if self._pack.entries + len(files) > PACK_FILES:
                self._end()
            error = self._append(files)
            if self._pack.size >= self._pack_bytes:
                self._end()
        if error is not None:
            for file in files:
                file.outcome = error

    def close(self) -> None:
        """End the last pack.

        Raises:
            SinkError: a pack could not be ended; what is in it is stored all the same.
        """
        with self._lock:
            self._end()
        if self._error is not None:
            raise self._error

    def _append(self, files: Sequence[PackedFile]) -> SinkError | None:
        pack = self._pack
        size, entries = pack.size, pack.entries
        try:
            if self._file is None:
                self._number += 1
                self._file, self._path = self._tree.begin(f"{self._token}-{self._number:06}")
            for file in files:
                file.outcome = file.put_into(pack, self._path)
            self._tree.grow(self._file, pack.take(), size)
        except (OSError, MemoryError) as exc:
            pack.cut(size, entries)
            if not entries:
                self._remove()
            return sink_error("store files in a pack", exc)
        return None

    def _remove(self) -> None:
        """Remove the pack, which has no files."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                self._tree.discard(file)

    def _end(self) -> None:
        pack, file = self._pack, self._file
        self._pack, self._file = Pack(), None
        if file is None:
            return
        size = pack.size
        try:
            self._tree.grow(file, pack.finish(), size)
        except (OSError, MemoryError) as exc:
            self._error = self._error or sink_error(f"end {self._path}", exc)
