"""Watch: after which operator the outputs of a watched one were no longer what it had written.

In watch mode CANN dumps the outputs of an operator C after itself, under its own name, and after each
operator A of ``layer``, under the name ``A_To_C`` with the task and stream of A and the type of C.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from dumpstream._errors import DumpFormatError, PartError
from dumpstream.analysis.difference import ComparisonError, Difference, compare
from dumpstream.analysis.modes import settings_of
from dumpstream.format.opname import OpName, Scheme, parse_name
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.reading.stored import StoredCapture
from dumpstream.system.batches import run_batches

if TYPE_CHECKING:
    from dumpstream.config import Operator

_AFTER = "_To_"
_SCHEMES = (Scheme.MODEL, Scheme.FFTS)
_AGAIN = "capture it again"
_REPLACED = re.compile(r"[ ./\\]")  # in names of files, by an underscore


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchDump:
    """The outputs of a watched operator, once."""

    input: Input
    name: OpName
    after: str  #: the operator that had just run

    @property
    def timestamp(self) -> int:
        """Microseconds since the epoch, by the device's clock."""
        return self.name.timestamp or 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """One execution of a watched operator: one in an iteration, unless iterations are not told apart."""

    op_name: str
    name: OpName  #: model, device and so on, from its first dump
    host: str | None  #: that the process ran on, in a job of several
    rank: int | None  #: of the process, in a capture of several
    early: int  #: dumps before its own, or all if that is missing; they say nothing
    dumps: tuple[WatchDump, ...]  #: from its own on, in the order of time; none if its own is missing
    unseen: tuple[str, ...]  #: operators of ``layer``, if that is known, after which there is no dump


class Trampling(NamedTuple):
    """Two dumps between which bytes changed."""

    before: WatchDump
    after: WatchDump
    suspects: tuple[str, ...]  #: operators that may have done it: in order, then the unseen of ``layer``
    by_graph: bool  #: whether these are all operators in between; otherwise there may be others
    differences: tuple[Difference, ...]


class WatchResult(NamedTuple):
    """What happened to the outputs of a watched operator."""

    watched: Watched
    compared: int  #: dumps that were compared with an earlier one
    tramplings: tuple[Trampling, ...]
    problems: tuple[str, ...]  #: why others were not, each with the name of a file or an operator

    @property
    def clean(self) -> bool:
        """Whether there were dumps, all of them were compared, and nothing changed."""
        return self.compared > 0 and not self.tramplings and not self.problems


class Graph:
    """The order of the operators of a graph."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        chosen = [operator for operator in operators if not operator.single]
        self._operators = sorted(chosen, key=lambda it: it.order or 0)

    def between(self, first: str, last: str, model: str | None) -> tuple[str, ...] | None:
        """Return the operators after *first* up to *last*, as files are named; None if one is not known."""
        names = [
            _file_name(it.name)
            for it in self._operators
            if not it.model or model is None or _file_name(it.model) == model
        ]
        if first not in names or last not in names:
            return None
        return tuple(names[names.index(first) + 1 : names.index(last) + 1]) or None


def _file_name(name: str) -> str:
    return _REPLACED.sub("_", name)


def _read_names(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return what each of *names*, of dumps of operators of one type, says.

    That is the watched operator, and the one after which it was dumped, which may be itself.
    """
    splits = {name: _splits(name) for name in names}
    endings = {watched for ways in splits.values() for watched, _ in ways}
    last_endings = Counter(ways[0][0] for ways in splits.values() if ways)

    def read(name: str) -> tuple[str, str]:
        ways = splits[name]
        for watched, after in ways:
            if watched in splits:
                return watched, after
        own_is_missing = ways and name not in endings and last_endings[ways[0][0]] > 1
        return ways[0] if own_is_missing else (name, name)

    return {name: read(name) for name in splits}


def _splits(name: str) -> list[tuple[str, str]]:
    """Return the ways to read ``A_To_C``: the watched operator, the shortest name first, and the other."""
    marks = [match.start() for match in re.finditer(f"(?={_AFTER})", name)]
    splits = [(name[mark + len(_AFTER) :], name[:mark]) for mark in reversed(marks)]
    return [split for split in splits if all(split)]


def find_watched(inputs: Iterable[Input]) -> list[Watched]:
    """Return the watched operators that the names of *inputs* show, with their dumps in order.

    A name with ``_To_`` is a dump of the operator behind it if there is also a dump of that operator itself,
    or another such name with the same operator.
    """
    dumps: list[WatchDump] = []
    names: dict[str | None, set[str]] = defaultdict(set)
    for item in inputs:
        name = parse_name(item.full_name)
        if name.scheme in _SCHEMES and name.op_name is not None:
            dumps.append(WatchDump(input=item, name=name, after=name.op_name))
            names[name.op_type].add(name.op_name)
    read = {op_type: _read_names(of_type) for op_type, of_type in names.items()}
    groups: dict[tuple[object, ...], list[WatchDump]] = defaultdict(list)
    for dump in sorted(dumps, key=lambda dump: dump.timestamp):
        name, directory = dump.name, dump.input.full_name.rpartition("/")[0]
        watched, after = read[name.op_type][dump.after]
        key = (watched, name.op_type, directory, name.context, name.thread)
        groups[key].append(replace(dump, after=after))
    layers = {id(dump.input.capture): _layer(dump.input.capture) for dump in dumps}
    found = [
        _execution(str(key[0]), iteration, layers[id(iteration[0].input.capture)])
        for key, group in groups.items()
        for iteration in _iterations(group)
    ]
    return sorted(found, key=lambda it: it.name.timestamp or 0)


def _layer(capture: StoredCapture | None) -> tuple[str, ...]:
    """Return the operators of ``layer``, as files are named; none if it changed or is not known."""
    watching = [it for it in settings_of(capture) if it is None or it.is_watch]
    items = [it.dump_list[-1] if it and it.dump_list else None for it in watching]
    layers = {None if item is None else item.layer for item in items}
    (only,) = layers if len(layers) == 1 else (None,)
    return tuple(map(_file_name, only or ()))


def _iterations(dumps: Sequence[WatchDump]) -> Iterator[list[WatchDump]]:
    """Yield the dumps of each iteration, in which every operator runs once; directories may have several."""
    iteration: dict[str, WatchDump] = {}
    for dump in dumps:
        if dump.after in iteration:
            yield list(iteration.values())
            iteration = {}
        iteration[dump.after] = dump
    yield list(iteration.values())


def _execution(op_name: str, dumps: Sequence[WatchDump], layer: Sequence[str]) -> Watched:
    """Return one execution, which begins with the operator's own dump."""
    seen = [dump.after for dump in dumps]
    early = seen.index(op_name) if op_name in seen else len(dumps)
    return Watched(
        op_name=op_name,
        name=dumps[min(early, len(dumps) - 1)].name,
        host=dumps[0].input.host,
        rank=dumps[0].input.rank,
        early=early,
        dumps=tuple(dumps[early:]),
        unseen=tuple(name for name in dict.fromkeys(layer) if name not in seen),
    )


def watch(watched: Iterable[Watched], graph: Graph | None = None) -> Iterator[WatchResult]:
    """Compare the dumps of each of *watched*, several at once, and yield the results in order."""
    return run_batches(
        lambda batch: [_Chain(it, graph).result() for it in batch],
        watched,
        bytes_of=lambda it: sum(dump.input.bytes for dump in it.dumps),
        is_remote=lambda it: any(dump.input.remote for dump in it.dumps),
    )


def _problem(error: DumpFormatError | PartError | OSError) -> str:
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error.detail


class _Chain:
    """The dumps of one execution, each compared with the last one before it that can be read."""

    def __init__(self, watched: Watched, graph: Graph | None) -> None:
        self._watched, self._graph = watched, graph
        self._compared = 0
        self._tramplings: list[Trampling] = []
        self._problems: list[str] = []

    def result(self) -> WatchResult:
        dumps = self._watched.dumps
        if not dumps:
            name = self._watched.op_name
            self._problems.append(f"{name}: its own dump is missing, so its outputs are not known; {_AGAIN}")
        last: int | None = None
        for current, dump in enumerate(dumps):
            if not dump.input.whole:
                self._note(dump, f"is not whole ({dump.input.verdict})")
            else:
                last = current if last is None else self._step(last, current)
        return WatchResult(self._watched, self._compared, tuple(self._tramplings), tuple(self._problems))

    def _step(self, last: int, current: int) -> int:
        """Compare two dumps and return the one to compare the next with."""
        before, after = self._watched.dumps[last], self._watched.dumps[current]
        with ExitStack() as stack:
            opened: list[DumpFile] = []
            for dump in (before, after):
                try:
                    opened.append(stack.enter_context(dump.input.open()))
                except (DumpFormatError, PartError, OSError) as exc:
                    self._note(dump, _problem(exc))
                    return current if dump is before else last
            try:
                found = compare(*opened)
            except ComparisonError as exc:
                faulty = before if exc.dump is opened[0] else after
                self._note(faulty, exc.problem)
                return current if faulty is before else last
        self._compared += 1
        if found:
            suspects, by_graph = self._suspects(last, current)
            self._tramplings.append(Trampling(before, after, suspects, by_graph, tuple(found)))
        return current

    def _suspects(self, last: int, current: int) -> tuple[tuple[str, ...], bool]:
        watched, dumps = self._watched, self._watched.dumps
        if self._graph is not None:
            between = self._graph.between(dumps[last].after, dumps[current].after, watched.name.model)
            if between is not None:
                return between, True
        names = [dump.after for dump in dumps[last + 1 : current + 1]]
        return (*names, *watched.unseen), False

    def _note(self, dump: WatchDump, problem: str) -> None:
        self._problems.append(f"{dump.input.label}: {problem}")
