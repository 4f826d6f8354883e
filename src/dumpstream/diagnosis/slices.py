"""Slices: tensors that were read as a part of another, or joined of several, proven by their bytes.

Hashes are of whole tensors, so of such an edge they say nothing. If the capture stores the bytes, those that
both ends have in common are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xxhash

from dumpstream._errors import DumpstreamError
from dumpstream.diagnosis.dataflow.flow import Flow, Link
from dumpstream.diagnosis.dataflow.trace import Numbers, Trace
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.subject import Subject
from dumpstream.format.header import IO

#: What is read at most: bytes of tensors, and files.
_MOST_BYTES = 256 << 20
_MOST_FILES = 2048
_IO = [*IO]


class _Range(NamedTuple):
    """Some bytes of a row, by where they are in the tensor."""

    row: int
    start: int
    stop: int


class _Seen(NamedTuple):
    """What the bytes of a range are."""

    digest: int
    constant: bool  #: all elements are the same, so that other tensors may well have the same


def with_proven_slices(subject: Subject, evidence: Evidence) -> Evidence:
    """Return *evidence* with the edges proven that the stored bytes prove, and without those they disprove.

    Edges of bad tensors come first, and what would take too much reading stays suggested.
    """
    flow, trace = evidence.flow, evidence.trace
    edges = _partial(flow, trace)
    if not len(edges):
        return evidence
    bad = evidence.findings.bad
    first = bad[flow.readers[edges]] | bad[flow.sources[edges]]
    ranges = {
        edge: (_range(flow, trace, edge, flow.readers), _range(flow, trace, edge, flow.sources))
        for edge in edges[np.argsort(~first, kind="stable")].tolist()
    }
    seen = dict(_read(subject, trace, _affordable(trace, ranges.values())))
    links, kept = flow.links.copy(), np.ones(len(flow.links), np.bool_)
    for edge, (mine, theirs) in ranges.items():
        if mine not in seen or theirs not in seen:
            continue
        if seen[mine].digest != seen[theirs].digest:
            kept[edge] = False  # an operator that was not dumped wrote in between
        elif not seen[mine].constant:
            links[edge] = Link.PROVEN
    columns = {
        name: getattr(flow, name)[kept]
        for name in ("readers", "sources", "starts", "stops")
        if not kept.all()
    }
    return replace(evidence, flow=replace(flow, links=links[kept], **columns))


def _partial(flow: Flow, trace: Trace) -> Numbers:
    """Return the suggested edges between rows of which one is larger than the other, or overlaps it."""
    size = trace.counts["size"]
    same = trace.address[flow.readers] == trace.address[flow.sources]
    same &= size[flow.readers] == size[flow.sources]
    found: Numbers = np.flatnonzero((flow.links == Link.SUGGESTED) & ~same)
    return found


def _range(flow: Flow, trace: Trace, edge: int, rows: Numbers) -> _Range:
    row = int(rows[edge])
    at = int(trace.address[row])
    return _Range(row, int(flow.starts[edge]) - at, int(flow.stops[edge]) - at)


def _affordable(trace: Trace, ranges: Iterable[tuple[_Range, _Range]]) -> dict[str, list[_Range]]:
    """Return by file which ranges are read, of the first of *ranges*."""
    files: dict[str, list[_Range]] = defaultdict(list)
    counted: set[int] = set()
    left = _MOST_BYTES
    for both in ranges:
        rows = {it.row for it in both} - counted
        left -= sum(int(trace.counts["size"][row]) for row in rows)
        if left < 0 or len(files) >= _MOST_FILES:
            break
        counted |= rows
        for it in both:
            files[trace.text("file", it.row) or ""].append(it)
    return files


def _read(subject: Subject, trace: Trace, files: dict[str, list[_Range]]) -> Iterator[tuple[_Range, _Seen]]:
    """Yield what the bytes of ranges are; nothing of files that are not stored, or not whole."""
    for dump, name in subject.open_files(files):
        with suppress(DumpstreamError, OSError, ValueError), dump:
            by_tensor: dict[tuple[IO, int | None], list[_Range]] = defaultdict(list)
            for it in dict.fromkeys(files[name]):
                by_tensor[_IO[trace.io[it.row]], trace.number("index", it.row)].append(it)
            for tensor in dump.tensors:
                ranges = by_tensor.get((tensor.io, tensor.index), [])
                if ranges and tensor.stored:
                    yield from _see(dump.blocks(tensor), ranges, _element_bytes(trace, ranges[0].row))


def _element_bytes(trace: Trace, row: int) -> int:
    size, count = trace.number("size", row) or 0, trace.number("count", row) or 0
    return max(size // count, 1) if count else 1


def _see(blocks: Iterable[memoryview], ranges: list[_Range], unit: int) -> Iterator[tuple[_Range, _Seen]]:
    digests = {it: xxhash.xxh3_64() for it in ranges}
    firsts: dict[_Range, bytes] = {}
    varied: set[_Range] = set()
    at = 0
    for block in blocks:
        for it in ranges:
            part = block[max(it.start - at, 0) : max(it.stop - at, 0)]
            if not len(part):
                continue
            digests[it].update(part)
            first = firsts.setdefault(it, bytes(part[:unit]))
            if it not in varied and not _repeats(part, first, max(at - it.start, 0) % unit):
                varied.add(it)
        at += len(block)
    for it in ranges:
        if it.stop <= at:
            yield it, _Seen(digests[it].intdigest(), it not in varied)


def _repeats(part: memoryview, element: bytes, offset: int) -> bool:
    """Whether *part*, which begins *offset* bytes into an element, is that element again and again."""
    whole = element[offset:] + element * (len(part) // max(len(element), 1) + 1)
    return part == memoryview(whole)[: len(part)]
