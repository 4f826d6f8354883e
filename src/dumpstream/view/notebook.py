"""A run in a notebook: its tables, its arrays, its answers, and a small map of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.comparison import Comparison, compare
from dumpstream.diagnosis.answer import diagnose
from dumpstream.diagnosis.report import Diagnosis
from dumpstream.format.header import IO
from dumpstream.reading.inputs import Input, find_inputs
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.system.location import Prefix, as_location
from dumpstream.view.scene import Scene
from dumpstream.view.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

_WIDTH, _HEIGHT = 120, 60  #: places of the map; more share a place, and the worst one counts
_CELL = 6  #: pixels
_IO = tuple(IO)
_COLOURS = ("#96bae0", "#f08c14", "#d61860")  #: nothing, infinity, NaN
_NOTHING = "#e2e7ee"
_MOST_ROWS = 10  #: of the table
_NUMBERS = ("count", "nan", "inf", "min", "max", "mean")  #: columns of the table


def open_run(path: str | os.PathLike[str] | Prefix, *, ranks: Sequence[int] = ()) -> OpenRun:
    """Return the run at *path*, for a notebook; nothing is read before it is asked for.

    Args:
        path: a capture (directory or URL), a job or one of its hosts, a directory of dump files, or a table
            of statistics.
        ranks: only the processes of these, in a capture of several.
    """
    return OpenRun(as_location(path), ranks)


class OpenRun:
    """A run; what was read of it is kept. For one thread at a time."""

    def __init__(self, path: Path | Prefix, ranks: Sequence[int] = ()) -> None:
        self.path, self.ranks = path, tuple(ranks)
        self._snapshot = Snapshot(path, ranks)

    def tensors(self) -> pa.Table:
        """Return the statistics of every tensor as a table of Arrow.

        ``run.tensors().to_pandas()`` is one of pandas, ``polars.from_arrow(run.tensors())`` one of polars.

        Raises:
            DumpstreamError: pyarrow is not installed, or the run cannot be read.
        """
        require_pyarrow("a table of Arrow", otherwise="")
        import pyarrow.compute as pc  # noqa: PLC0415 - slow, and optional
        import pyarrow.parquet  # noqa: PLC0415 - likewise

        from dumpstream.tables.tensortable import open_tensors  # noqa: PLC0415 - needs pyarrow

        with os.fdopen(open_tensors([self.path], self.ranks), "rb") as file:
            file.seek(0)
            table = pyarrow.parquet.read_table(file)
        return table.filter(pc.is_valid(table["io"]))

    def file(self, name: str) -> RunFile:
        """Return the file that is called *name*, or the only one that matches it as a pattern.

        Raises:
            DumpstreamError: no file matches, or several do.
        """
        found = find_inputs([self.path], self.ranks, [name])
        first, second = next(found), next(found, None)
        if second is not None and first.name != name:
            raise DumpstreamError(f"{first.name} and others match {name!r}; name one of them")
        return RunFile(first)

    def diagnose(self, **options: Any) -> Diagnosis:
        """Return what `dumpstream.diagnose` says of this run."""
        return diagnose(self.path, ranks=self.ranks, **options)

    def compare(self, golden: OpenRun | str | os.PathLike[str] | Prefix, **options: Any) -> Comparison:
        """Return what `dumpstream.compare` says of this run beside a *golden* one, for a ``with`` block."""
        beside = golden.path if isinstance(golden, OpenRun) else golden
        return compare(self.path, beside, **{"rank": [*map(str, self.ranks)], **options})

    def _repr_html_(self) -> str:
        scene, said = self._snapshot.scene(), self._snapshot.details().said()
        summary = f"{len(scene.cells):,} tensors, {len(scene.cells.operators)} operators"
        sentence = f"<p><b>{escape(said.sentence)}</b></p>" if said.sentence else ""
        return (
            f"<p><code>{escape(str(self.path))}</code>: {summary}</p>{sentence}{_map(scene)}{_table(scene)}"
        )


class RunFile:
    """A dump file of a run."""

    def __init__(self, item: Input) -> None:
        self._item = item

    @property
    def name(self) -> str:
        """The name as `ls` shows it."""
        return self._item.name

    def tensor(self, io: str, index: int = 0) -> NDArray[Any]:
        """Return a tensor as an array of its own, such as ``tensor("output", 0)``.

        Raises:
            LookupError: the file has no such tensor, or no bytes of it.
            DumpstreamError: the file cannot be read.
        """
        with self._item.open() as dump:
            for tensor in dump.tensors:
                if tensor.io == IO(io) and tensor.index == index and tensor.stored:
                    return np.array(dump.array(tensor))
            have = ", ".join(tensor.label for tensor in dump.tensors if tensor.stored) or "nothing"
        raise LookupError(f"{self.name} has no {io} {index}; it has {have}")


def _table(scene: Scene) -> str:
    """Return a table of the first bad tensors; of the first ones, if none is bad."""
    cells = scene.cells
    columns = cells.columns
    bad = (columns["nan"] > 0) | (columns["inf"] > 0)
    order = np.lexsort((columns["operator"], columns["step"], ~bad))[:_MOST_ROWS].tolist()
    titles = ("step", "process", "operator", "tensor", *_NUMBERS)
    lines = ["".join(f"<th>{title}</th>" for title in titles)]
    for i in order:
        _, op_type, op_name = cells.operators[int(columns["operator"][i])]
        words = (
            cells.steps[int(columns["step"][i])],
            cells.processes[int(columns["process"][i])],
            op_name or op_type,
            f"{_IO[int(columns['io'][i])]} {columns['index'][i]}",
            *(f"{columns[name][i]:.6g}" for name in _NUMBERS),
        )
        lines.append("".join(f"<td>{'' if it is None else escape(str(it))}</td>" for it in words))
    shown = "the first bad tensors" if bad.any() else "the first tensors"
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{shown}, of {len(cells):,}</caption>{rows}</table>" if order else ""


def _map(scene: Scene) -> str:
    """Return a drawing of steps and operators: what is NaN or infinite in each."""
    cells = scene.cells
    if not len(cells):
        return "<p>No tensor was captured.</p>"
    columns, lines = min(len(cells.steps), _WIDTH), min(len(cells.operators), _HEIGHT)
    x = cells.columns["step"].astype(np.int64) * columns // len(cells.steps)
    y = cells.columns["operator"].astype(np.int64) * lines // len(cells.operators)
    worst = np.full((lines, columns), -1)
    bad = np.where(cells.columns["nan"] > 0, 2, np.where(cells.columns["inf"] > 0, 1, 0))
    np.maximum.at(worst, (y, x), bad)
    rectangles = [
        f'<rect x="{column * _CELL}" y="{line * _CELL}" width="{_CELL - 1}" height="{_CELL - 1}" '
        f'fill="{_COLOURS[value] if value >= 0 else _NOTHING}"/>'
        for (line, column), value in np.ndenumerate(worst)
    ]
    legend = "steps from left to right, operators from top to bottom; red: NaN, orange: infinity"
    return (
        f'<svg width="{columns * _CELL}" height="{lines * _CELL}" role="img" aria-label="{legend}">'
        f"{''.join(rectangles)}</svg><p><small>{legend}</small></p>"
    )
