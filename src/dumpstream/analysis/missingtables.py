"""Missing tables: what the statistics sink left is not there; told once, and not for each file."""

from collections.abc import Iterator, Sequence
from os.path import commonpath
from pathlib import PurePosixPath

from dumpstream.analysis.sources import Batch, Measured
from dumpstream.statistics.tensors import TensorRows


class MissingTables:
    """Tables of a capture that are not where its journal says, of files whose bytes are not stored.

    The names of the capture's files begin with *prefix*.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._folders: dict[bool, tuple[str, int]] = {}  # by whether it is inside: where, and of how many

    def __bool__(self) -> bool:
        return bool(self._folders)

    def add(self, path: str) -> None:
        """Note that the rows of a file are in the table at *path*."""
        folder = str(PurePosixPath(path).parent)
        inside = not path.startswith("/")
        before, files = self._folders.get(inside, (folder, 0))
        self._folders[inside] = commonpath([before, folder]), files + 1

    def measure(self, items: Sequence[None]) -> Iterator[Batch]:
        """Yield one problem for the tables inside the capture, and one for the others."""
        problems = [self._explain(inside, *found) for inside, found in self._folders.items()]
        for _ in items:
            yield Batch([Measured(self._prefix, problems=problems, process=self._prefix)], TensorRows(), [0])

    def _explain(self, inside: bool, folder: str, files: int) -> str:  # noqa: FBT001 - not for callers
        statistics = f"the statistics of {files} file{'' if files == 1 else 's'}"
        if not inside:
            return (
                f"{self._prefix}{statistics} are in {folder}, which is not here; "
                "run the command where it is, or name a copy of it instead of the capture"
            )
        return (
            f"{statistics} were in a table in {self._prefix}{folder} that is missing; restore it from a copy "
            "(a capture that is killed loses the rows of its last seconds)"
        )
