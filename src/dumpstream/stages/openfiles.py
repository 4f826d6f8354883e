"""Open files: the unfinished ones in the order in which they became idle, and the memory that they take."""

from collections import OrderedDict
from math import inf

from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.stages.assembly import File


class OpenFiles:
    """The unfinished files, of which at most *most* with at most *most_bytes* of memory are to be open.

    Args:
        most: how many may be open.
        most_bytes: how much memory they may take.
        timeout: seconds without a chunk after which a file is idle; None: never.
        text_timeout: the same for statistics text.
    """

    def __init__(
        self, *, most: int, most_bytes: int, timeout: float | None, text_timeout: float | None
    ) -> None:
        self.dumps: OrderedDict[str, File] = OrderedDict()  #: by name, the one that is idle longest first
        self._texts: OrderedDict[str, File] = OrderedDict()  #: the same of statistics text
        self._most, self._most_bytes = most, most_bytes
        self._timeouts = [
            (files, inf if seconds is None else seconds)
            for files, seconds in ((self.dumps, timeout), (self._texts, text_timeout))
        ]
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.dumps) + len(self._texts)

    def find(self, name: str) -> File | None:
        """Return the open file *name*."""
        return self._like(name).get(name)

    def add(self, file: File) -> None:
        """Add a file that was just opened."""
        self._like(file.name)[file.name] = file
        self.weigh(file)

    def remove(self, file: File) -> None:
        """Remove a file that has ended."""
        del self._like(file.name)[file.name]
        self._bytes -= file.weighed

    def touch(self, file: File, now: float) -> None:
        """Note that a chunk of *file* has come."""
        if file.touched != now:
            file.touched = now
            self._like(file.name).move_to_end(file.name)

    def weigh(self, file: File) -> None:
        """Note how much memory *file* takes now."""
        weight = file.weight
        self._bytes += weight - file.weighed
        file.weighed = weight

    def next_idle(self, now: float) -> File | None:
        """Return a file that has got nothing for too long."""
        for files, timeout in self._timeouts:
            if files:
                file = next(iter(files.values()))
                if file.touched + timeout <= now:
                    return file
        return None

    def next_open(self, *, besides: File | None = None) -> File | None:
        """Return the file that has been idle longest, *besides* apart."""
        idlest = [next(iter(files.values())) for files in (self.dumps, self._texts) if files]
        others = [file for file in idlest if file is not besides]
        return min(others, key=lambda file: file.touched, default=None)

    def next_surplus(self, latest: File) -> File | None:
        """Return the file to close because too many are open or take too much memory; never *latest*."""
        fits = len(self) <= self._most and self._bytes <= self._most_bytes
        return None if fits else self.next_open(besides=latest)

    def _like(self, name: str) -> OrderedDict[str, File]:
        return self._texts if name.endswith(TEXT_SUFFIX) else self.dumps
