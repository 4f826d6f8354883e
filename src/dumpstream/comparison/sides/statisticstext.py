"""Statistics text: the tensors that CANN's own statistics describe, which have no elements."""

from __future__ import annotations

from itertools import groupby

from typing_extensions import Buffer

from dumpstream.comparison.sides.descriptor import Descriptor, numbers_of
from dumpstream.comparison.sides.entry import Entry
from dumpstream.comparison.sides.origin import Origin, origin_of_dump
from dumpstream.statistics.files import begin_file, origin_of
from dumpstream.statistics.table import TensorRow


def entries_of_text(entry: Entry, name: str, text: Buffer) -> list[Entry]:
    """Return the entries of the text of the file *name*, each like *entry*, which has what the name says.

    There is one, unless the text has the operators in front of its lines.
    """
    statistics = begin_file(origin_of(name))
    statistics.add(memoryview(text))
    rows = statistics.finish()
    found = [row for row in rows if row.io is not None]
    if not found:
        problem = next((row.problem for row in rows if row.problem is not None), "it has no lines")
        return [entry._replace(reference=None, content=None, problem=problem)]
    return [
        entry._replace(origin=origin, reference=None, content=None).describe([*map(_described, of)])
        for origin, of in groupby(found, key=lambda row: _origin(entry.origin, row))
    ]


def _origin(origin: Origin, row: TensorRow) -> Origin:
    """Return the origin of a line: that of the file, unless the line names another operator."""
    if row.op_name == origin.op_name or row.op_name is None:
        return origin
    parts = (row.op_type or "", row.op_name, row.task or 0, row.stream or 0, row.timestamp or 0)
    said = origin_of_dump(".".join(map(str, parts)), origin.rank, origin.step)
    return said._replace(device=origin.device, model=origin.model, step=origin.step, started=origin.started)


def _described(row: TensorRow) -> Descriptor:
    return Descriptor(
        row.io or "",
        row.index or 0,
        row.dtype,
        row.format,
        row.shape,
        row.original_shape,
        row.count,
        row.size,
        hash=row.hash,
        problem=row.problem,
        statistics=numbers_of(row),
    )
