"""Trace: the rows of a run as arrays, which thousands of questions can be asked of at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream.diagnosis.dataflow.tracecolumns import Shared, TraceColumns
from dumpstream.format.header import IO
from dumpstream.statistics.tensors import TensorRows, Tensors

#: What a number is that is not known; no count, step, task or time is negative.
UNKNOWN = -1

#: Integers, which are signed.
Numbers = NDArray[Any]
Mask = NDArray[np.bool_]

_IO = {str(io): number for number, io in enumerate(IO)}
INPUT, OUTPUT = _IO[IO.INPUT], _IO[IO.OUTPUT]

#: The columns of integers, which are not negative,
_COUNTS = (
    *("iteration", "model_id", "task", "stream", "timestamp", "index", "count", "nan", "pos_inf", "neg_inf"),
    *("zero", "size", "bytes"),
)
#: those of real numbers, and those of text, of which rows share values.
_REALS = ("saturated", "mean", "std", "finite_max", "finite_min", "l2norm")
_TEXTS = ("file", "op_type", "op_name", "model", "dtype", "source", "problem")

#: What must be known of every row.
COLUMNS = (*_TEXTS, *_COUNTS, *_REALS, "io", "device", "shape", "hash", "address", "host", "rank", "capture")

_PLACE = re.compile(r"(.*?(?:^|/)[0-9]{14}/+[0-9]{1,5})(?:/|$)")


class Process(NamedTuple):
    """One device of one process in one session of dumping: what has memory and an order of its own."""

    capture: str | None  #: the path that it was read from, if several were read at once
    host: str | None  #: that it ran on, in a job of several
    rank: int | None
    device: int | None
    place: str  #: the directory that the runtime made for it; empty if the names do not have one

    @property
    def label(self) -> str:
        """What it is called where people look at it; the device only if the rank does not tell it."""
        parts = [self.capture or "", f"host {self.host}" if self.host else ""]
        parts += [] if self.rank is None else [f"rank {self.rank}"]
        parts += [] if self.device in {None, self.rank} else [f"device {self.device}"]
        return ", ".join(filter(None, parts)) or "process"


@dataclass(frozen=True, eq=False)
class Trace:
    """Rows of statistics; the arrays have one value for each."""

    processes: Sequence[Process]
    process: Numbers  #: its number
    texts: Mapping[str, Sequence[str | None]]  #: the different values of each column of text
    codes: Mapping[str, Numbers]  #: which of them a row has
    counts: Mapping[str, Numbers]  #: `UNKNOWN` where not known
    reals: Mapping[str, NDArray[np.float64]]  #: NaN also where not known
    io: Numbers  #: in the order of `IO`, or `UNKNOWN`
    hash: NDArray[np.uint64]
    hashed: Mask  #: whether the hash is known
    address: NDArray[np.uint64]  #: 0 where not known
    shapes: Sequence[tuple[int, ...] | None]  #: the different ones
    shape: Numbers  #: which of them a row has

    def __len__(self) -> int:
        return len(self.process)

    def text(self, column: str, row: int) -> str | None:
        """Return the text that *row* has in *column*."""
        return self.texts[column][int(self.codes[column][row])]

    def number(self, column: str, row: int) -> int | None:
        """Return the integer that *row* has in *column*."""
        value = int(self.counts[column][row])
        return None if value == UNKNOWN else value


@dataclass
class _Codes:
    """The different values of a column, numbered as they come."""

    numbers: dict[Any, int] = field(default_factory=dict)

    def take(self, values: Iterable[Any]) -> Numbers:
        numbers = self.numbers
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)


class TraceBuilder:
    """Collects rows in portions."""

    def __init__(self) -> None:
        self._texts = {name: _Codes() for name in (*_TEXTS, "shape")}
        self._processes = _Codes()
        self._parts: dict[str, list[NDArray[Any]]] = {}

    def add(self, tensors: Tensors) -> None:
        """Take the rows of *tensors*."""
        columns = TraceColumns(tensors)
        for name in _TEXTS:
            self._put(name, self._taken(self._texts[name], columns.shared(name)))
        self._put("shape", self._taken(self._texts["shape"], columns.shapes()))
        for name in _COUNTS:
            self._put(name, columns.numbers(name, np.int64, UNKNOWN))
        for name in _REALS:
            self._put(name, columns.numbers(name, np.float64, np.nan))
        ios, places = columns.shared("io")
        self._put("io", np.array([_IO.get(io, UNKNOWN) for io in ios], np.int64)[places])
        digests, known = columns.digests()
        self._put("hash", digests)
        self._put("hashed", known)
        self._put("address", columns.numbers("address", np.uint64, 0))
        self._put("process", self._taken(self._processes, _processes(columns)))

    @staticmethod
    def _taken(codes: _Codes, shared: Shared) -> Numbers:
        values, places = shared
        return codes.take(values)[places]

    def build(self) -> Trace:
        """Return all rows, and forget them."""
        if not self._parts:
            self.add(TensorRows())
        # One column after the other, so that only one is there twice.
        whole = {name: np.concatenate(self._parts.pop(name)) for name in [*self._parts]}
        return Trace(
            processes=[Process(*it) for it in self._processes.numbers],
            process=whole["process"],
            texts={name: [*self._texts[name].numbers] for name in _TEXTS},
            codes={name: whole[name] for name in _TEXTS},
            counts={name: whole[name] for name in _COUNTS},
            reals={name: whole[name] for name in _REALS},
            io=whole["io"],
            hash=whole["hash"],
            hashed=whole["hashed"],
            address=whole["address"],
            shapes=[*self._texts["shape"].numbers],
            shape=whole["shape"],
        )

    def _put(self, name: str, values: NDArray[Any]) -> None:
        self._parts.setdefault(name, []).append(_packed(values) if name in _COUNTS else values)


def trace_of(portions: Iterable[Tensors]) -> Trace:
    """Return the rows of all *portions*."""
    builder = TraceBuilder()
    for portion in portions:
        builder.add(portion)
    return builder.build()


def find_constant(trace: Trace) -> Mask:
    """Return the rows whose hash proves nothing, because other tensors may well have the same bytes."""
    counts, reals = trace.counts, trace.reals
    count = counts["count"]
    same = [count <= 1, *(counts[name] == count for name in ("nan", "pos_inf", "neg_inf", "zero"))]
    found: Mask = np.logical_or.reduce([*same, reals["std"] == 0, reals["finite_max"] == reals["finite_min"]])
    return found


def _packed(values: NDArray[np.int64]) -> Numbers:
    """Return *values* in as few bits as they need: a run has millions, and most of them are small."""
    if len(values) and np.abs(values).max() <= np.iinfo(np.int32).max:
        return values.astype(np.int8 if np.abs(values).max() <= np.iinfo(np.int8).max else np.int32)
    return values


def _processes(columns: TraceColumns) -> Shared:
    """Return the different processes, as `Process` has them, and which of them each row is of."""
    files, of_file = columns.shared("file")
    directories = [place_of(file or "") for file in files]
    places, of_place = _different(directories)
    shared = [
        columns.shared("capture"),
        columns.shared("host"),
        columns.different_numbers("rank"),
        columns.different_numbers("device"),
        (places, of_place[of_file]),
    ]
    rows = len(of_file)
    key = np.zeros(rows, np.int64)
    for values, of in shared:
        key = key * len(values) + of
    found, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    # In the order in which they come, as rows that are added one by one have it.
    order = np.argsort(first, kind="stable")
    number = np.empty(len(found), np.int64)
    number[order] = np.arange(len(found))
    processes = [tuple(values[of[row]] for values, of in shared) for row in first[order].tolist()]
    return processes, number[of_row.reshape(-1)]


def _different(values: Sequence[Any]) -> Shared:
    codes = _Codes()
    of = codes.take(values)
    return [*codes.numbers], of


def place_of(file: str) -> str:
    """Return the directory that the runtime made for a process, as the name of its *file* has it."""
    return _place_of_directory(file.rpartition("/")[0])


@lru_cache(4096)
def _place_of_directory(directory: str) -> str:
    match = _PLACE.match(directory)
    return match[1] if match is not None else ""
