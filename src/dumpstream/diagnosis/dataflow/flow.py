"""Flow: which output is which later input, by address, size and hash, process by process.

Every row is read or written in the order of its file. What an operator reads was written by the last row that
wrote there; if the bytes differ from what that row had, an operator that was not dumped wrote in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.memory import Memory, Span
from dumpstream.diagnosis.dataflow.trace import INPUT, OUTPUT, UNKNOWN, Mask, Numbers, Trace, find_constant

_LAST = np.uint64(2**64 - 1)


class Link(IntEnum):
    """What ties a row that was read to the row that the bytes are from."""

    PROVEN = 0  #: the bytes are the same, and no other tensor is likely to have them
    SUGGESTED = 1  #: it lies at the same address, but hashes do not say whether it is the same
    SAME = 2  #: both rows are reads: the bytes were the same when an earlier operator read them
    BEFORE = 3  #: it lay there before the operator, which works in place, wrote over it


class Source(NamedTuple):
    """Where the bytes of a row that was read are from."""

    row: int
    link: Link
    start: int  #: the bytes, by their addresses, ...
    stop: int


@dataclass(frozen=True, eq=False)
class Flow:
    """The data flow of a trace."""

    readers: Numbers  #: rows; an edge for each, in the order of the rows
    sources: Numbers
    links: NDArray[np.int8]
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    overwritten: Mask  #: of each row: an input that its operator wrote over before it was dumped
    addressed: Mask  #: of each row: where it lies is known

    def sources_of(self, row: int) -> list[Source]:
        """Return where the bytes of *row* are from; not all of them if bytes were not written in the run."""
        first, last = np.searchsorted(self.readers, [row, row + 1])
        return [
            Source(int(self.sources[i]), Link(self.links[i]), int(self.starts[i]), int(self.stops[i]))
            for i in range(first, last)
        ]


def find_flow(trace: Trace, executions: Executions) -> Flow:
    """Return the data flow of *trace*."""
    size = trace.counts["size"]
    addressed = (trace.address > 0) & (size > 0) & (executions.of_row != UNKNOWN)
    addressed &= trace.address <= _LAST - np.maximum(size, 0).astype(np.uint64)
    overwritten = _overwritten(trace, executions, addressed)
    edges = _Edges()
    rows = np.flatnonzero(addressed & ((trace.io == INPUT) | (trace.io == OUTPUT)))
    rows = rows[np.lexsort((trace.io[rows], executions.sequence[rows], trace.process[rows]))]
    constant = find_constant(trace)
    memory = Memory()
    process = UNKNOWN
    for it in _events(trace, rows, overwritten, constant):
        if it.process != process:
            process, memory = it.process, Memory()
            edges.forget()
        edges.take(memory, it)
    return edges.flow(overwritten, addressed)


class _Event(NamedTuple):
    """A row that was read or written."""

    row: int
    process: int
    start: int
    stop: int
    digest: int | None
    writes: bool
    overwritten: bool
    constant: bool


def _events(trace: Trace, rows: Numbers, overwritten: Mask, constant: Mask) -> Iterator[_Event]:
    for start in range(0, len(rows), 65536):  # lists of numbers take much memory
        some = rows[start : start + 65536]
        addresses = trace.address[some].tolist()
        sizes = trace.counts["size"][some].tolist()
        digests = trace.hash[some].tolist()
        columns = zip(
            some.tolist(),
            trace.process[some].tolist(),
            addresses,
            map(int.__add__, addresses, sizes),
            [digest if known else None for digest, known in zip(digests, trace.hashed[some], strict=True)],
            (trace.io[some] == OUTPUT).tolist(),
            overwritten[some].tolist(),
            constant[some].tolist(),
            strict=True,
        )
        yield from map(_Event._make, columns)


class _Edges:
    """Edges, as they are found in the order of the rows."""

    def __init__(self) -> None:
        self._readers, self._sources = array("q"), array("q")
        self._links = array("b")
        self._starts, self._stops = array("Q"), array("Q")
        self._written: dict[int, _Event] = {}

    def take(self, memory: Memory, it: _Event) -> None:
        """Find where the bytes of a row that is read are from, or note those of one that is written."""
        if it.writes:
            self._note(memory, it)
            return
        spans = memory.read(it.start, it.stop)
        if it.overwritten:
            self._add(it, spans, Link.BEFORE)
            return
        if len(spans) == 1 and (spans[0].start, spans[0].stop) == (it.start, it.stop):
            owner = self._written[spans[0].owner]
            if (owner.start, owner.stop) == (it.start, it.stop):
                self._add_same_place(memory, it, owner, spans)
                return
        if not spans:
            self._note(memory, it)
            return
        self._add(it, spans, Link.SUGGESTED)

    def forget(self) -> None:
        """Forget what was written, because other memory follows."""
        self._written.clear()

    def flow(self, overwritten: Mask, addressed: Mask) -> Flow:
        """Return all edges."""
        readers = np.array(self._readers, np.int64)
        order = np.argsort(readers, kind="stable")
        return Flow(
            readers=readers[order],
            sources=np.array(self._sources, np.int64)[order],
            links=np.array(self._links, np.int8)[order],
            starts=np.array(self._starts, np.uint64)[order],
            stops=np.array(self._stops, np.uint64)[order],
            overwritten=overwritten,
            addressed=addressed,
        )

    def _add_same_place(self, memory: Memory, it: _Event, owner: _Event, spans: list[Span]) -> None:
        if it.digest is None or owner.digest is None:
            self._add(it, spans, Link.SUGGESTED)
        elif it.digest != owner.digest:  # an operator that was not dumped wrote it
            self._note(memory, it)
        elif owner.writes:
            self._add(it, spans, Link.SUGGESTED if it.constant else Link.PROVEN)
        else:
            self._add(it, spans, Link.SAME)

    def _note(self, memory: Memory, it: _Event) -> None:
        """Note that *it* is the first that is known of its bytes."""
        memory.write(it.start, it.stop, it.row)
        self._written[it.row] = it

    def _add(self, it: _Event, spans: list[Span], link: Link) -> None:
        for span in spans:
            self._readers.append(it.row)
            self._sources.append(span.owner)
            self._links.append(link)
            self._starts.append(span.start)
            self._stops.append(span.stop)


def _overwritten(trace: Trace, executions: Executions, addressed: Mask) -> Mask:
    """Return the inputs that were dumped together with an output that lies on them."""
    inputs, outputs = executions.inputs, executions.outputs
    counts = outputs.lengths[executions.of_row[inputs.rows]]
    reads = np.repeat(inputs.rows, counts)
    first = np.repeat(outputs.starts[executions.of_row[inputs.rows]], counts)
    ends = np.cumsum(counts)
    place = np.arange(len(reads)) - np.repeat(ends - counts, counts)
    writes = outputs.rows[first + place]
    address, size = trace.address, trace.counts["size"].astype(np.uint64)
    overlap = addressed[reads] & addressed[writes]
    overlap &= address[reads] < address[writes] + size[writes]
    overlap &= address[writes] < address[reads] + size[reads]
    before = executions.separate[executions.of_row[reads]] & _was_before(trace, executions, reads, writes)
    overwritten = np.zeros(len(trace), np.bool_)
    overwritten[reads[overlap & ~before]] = True
    return overwritten


def _was_before(trace: Trace, executions: Executions, reads: Numbers, writes: Numbers) -> Mask:
    """Return of which pairs, in files of their own, the input was dumped before the output was written.

    Those of a collective are, and if the same memory had other bytes.
    """
    same = (trace.address[reads] == trace.address[writes]) & (
        trace.counts["size"][reads] == trace.counts["size"][writes]
    )
    differ = trace.hashed[reads] & trace.hashed[writes] & (trace.hash[reads] != trace.hash[writes])
    before: Mask = executions.collective[executions.of_row[reads]] | (same & differ)
    return before
