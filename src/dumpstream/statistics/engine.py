"""The engine: whole files in, the rows of their tensors out, as columns from native code wherever it can."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from dumpstream.statistics.columns import FileColumns, measure_columns
from dumpstream.statistics.files import is_text, origin_of, whole_file
from dumpstream.statistics.table import Provenance, TensorRow
from dumpstream.statistics.tensors import rows_of

#: Files beyond this are better read in blocks, each hashed while it is in the cache.
SMALL_BYTES = 256 << 10


class MeasuredFiles(NamedTuple):
    """The rows of some files, each of which is known by its number."""

    columns: FileColumns  #: of most files together
    numbers: list[int]  #: which files those are
    rows: Mapping[int, Sequence[TensorRow]]  #: of the other files, each by itself

    def by_file(self) -> dict[int, list[TensorRow]]:
        """Return the rows of every file."""
        found = {number: [*rows] for number, rows in self.rows.items()}
        places = self.columns.tensors["file"].tolist()
        for place, row in zip(places, rows_of(self.columns), strict=True):
            found.setdefault(self.numbers[place], []).append(row)
        return found


def measure_whole(
    files: Sequence[tuple[str, Buffer | None]],
    *,
    histogram: bool = False,
    labels: Sequence[str] | None = None,
    provenance: Provenance = Provenance(),  # noqa: B008 - it never changes
    steps: Sequence[int | None] | None = None,
) -> MeasuredFiles:
    """Return the rows of *files*, each a name and its bytes; one without bytes has no rows.

    Native code measures many small files at once if they are dump files, exactly what their headers promise,
    with elements of the common types, and without a *histogram*. Every other file is measured by itself.
    The rows are the same either way. They call the files by their names, or by *labels*. *steps* are the
    iterations of files whose names have none.
    """
    called = [name for name, _ in files] if labels is None else labels
    taken = [
        (name, data if data is not None and not histogram and _is_small(label, data) else b"")
        for label, (name, data) in zip(called, files, strict=True)
    ]
    columns, numbers = measure_columns(taken)
    columns = columns._replace(names=[called[number] for number in numbers], provenance=provenance)
    marked = [None] * len(files) if steps is None else steps
    iterations = columns.said["iteration"]
    for place, number in enumerate(numbers):
        if iterations[place] is None:
            iterations[place] = marked[number]
    native = set(numbers)
    rows = {
        number: whole_file(
            origin_of(name, called[number], provenance, marked[number]), data, histogram=histogram
        )
        for number, (name, data) in enumerate(files)
        if data is not None and number not in native
    }
    return MeasuredFiles(columns, numbers, rows)


def _is_small(label: str, data: Buffer) -> bool:
    return memoryview(data).nbytes <= SMALL_BYTES and not is_text(label)
