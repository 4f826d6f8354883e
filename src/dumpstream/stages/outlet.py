"""Outlet: a sink as the pipeline calls it, whose mistakes become errors of that sink."""

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

from typing_extensions import Buffer

from dumpstream._errors import SinkError
from dumpstream.format.verdict import Verdict
from dumpstream.names import NamePatterns
from dumpstream.sinks import Sink, SinkFile, Stored, WholeFile, takes_repeated_names

#: What an outlet answers for a file that its sink was not to store.
NOT_STORED = Stored()


class Only(NamedTuple):
    """Which files are stored: those whose names, behind *prefix*, match *patterns*."""

    patterns: NamePatterns
    prefix: str = ""  #: that `ls` shows before the names, if the capture is one of several

    def includes(self, name: str) -> bool:
        """Whether the file *name* is stored."""
        return self.patterns.match(self.prefix + name)


class Outlet(NamedTuple):
    """A sink, and what the journal calls it."""

    label: str
    sink: Sink
    only: Only | None = None  #: the files that it gets; None for all

    def asks_for(self, told: str) -> bool:
        """Whether the sink is to be *told* verdicts or steps of the files that it is given whole."""
        return takes(self.sink.put, told)

    async def open(self, name: str, *, offset: int, step: int | None) -> SinkFile:
        """Begin a file in the sink, or one that goes nowhere if the sink does not get it."""
        if self.only is not None and not self.only.includes(name):
            return _NOWHERE
        begin: Callable[..., Awaitable[SinkFile]] = self.sink.open
        more = {} if step is None or not takes(begin, "step") else {"step": step}
        return await begin(name, offset=offset, **more)

    async def put(
        self, files: Sequence[WholeFile], told: Mapping[str, Sequence[object]]
    ) -> Sequence[Stored | SinkError]:
        """Put *files*, with what the sink asks to be *told*, and check that it answers for each of them."""
        if self.only is None:
            return await self._put(files, told)
        chosen = [self.only.includes(file.name) for file in files]
        some = [*compress(files, chosen)]
        of_some = {name: [*compress(values, chosen)] for name, values in told.items()}
        stored = iter(await self._put(some, of_some) if some else ())
        return [next(stored) if it else NOT_STORED for it in chosen]

    async def _put(
        self, files: Sequence[WholeFile], told: Mapping[str, Sequence[object]]
    ) -> Sequence[Stored | SinkError]:
        if takes_repeated_names(self.sink) or len({file.name for file in files}) == len(files):
            return await self._put_once(files, told)
        results: dict[int, Stored | SinkError] = {}
        for numbers in _rounds(files):
            some = {key: [values[number] for number in numbers] for key, values in told.items()}
            stored = await self._put_once([files[number] for number in numbers], some)
            results |= zip(numbers, stored, strict=True)
        return [results[number] for number in range(len(files))]

    async def _put_once(
        self, files: Sequence[WholeFile], told: Mapping[str, Sequence[object]]
    ) -> Sequence[Stored | SinkError]:
        put: Callable[..., Awaitable[Sequence[Stored | SinkError]]] = self.sink.put
        results = list(await put(files, **told))
        if len(results) != len(files):
            raise TypeError(f"put() returned {len(results)} results for {len(files)} files")
        for result in results:
            if not isinstance(result, SinkError):
                _check_stored(result, "put")
        return results


def _rounds(files: Sequence[WholeFile]) -> list[list[int]]:
    """Divide *files*, as numbers, so that no name is in one round twice and each name keeps its order."""
    rounds: list[list[int]] = []
    seen: Counter[str] = Counter()
    for number, file in enumerate(files):
        before = seen[file.name]
        seen[file.name] += 1
        if before == len(rounds):
            rounds.append([])
        rounds[before].append(number)
    return rounds


class _Nowhere:
    """A file that no sink gets."""

    async def write(self, pieces: Sequence[Buffer]) -> None:
        pass

    async def commit(self) -> Stored:
        return NOT_STORED

    async def abort(self) -> None:
        pass


_NOWHERE = _Nowhere()


async def write_pieces(file: SinkFile, pieces: Sequence[Buffer], verdict: Verdict | None) -> Stored | None:
    """Write *pieces* to *file*; if it ends, with a *verdict*, commit it and return where it went."""
    if pieces:
        await file.write(pieces)
    if verdict is None:
        return None
    commit: Callable[..., Awaitable[Stored]] = file.commit
    stored = await (commit(verdict=verdict) if takes(commit, "verdict") else commit())
    _check_stored(stored, "commit")
    return stored


def takes(method: Callable[..., Any], name: str) -> bool:
    """Whether *method* of a sink has a parameter *name*; many sinks are written without the optional ones."""
    return _has_parameter(getattr(method, "__func__", method), name)


@lru_cache(256)
def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # not every callable has a signature
        return False


def as_sink_error(outlet: Outlet, error: BaseException) -> SinkError:
    """Return *error* as the `SinkError` that the sink should have raised."""
    error = unwrapped(error)
    if isinstance(error, SinkError):
        return error
    if isinstance(error, MemoryError):
        return out_of_memory()
    wrapped = SinkError(f"the {outlet.label} sink failed: {error!r}")
    wrapped.__cause__ = error
    return wrapped


def unwrapped(error: BaseException) -> BaseException:
    """Return the error that is alone in the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def out_of_memory() -> SinkError:
    """Return the error that says that memory is used up."""
    remedy = "lower max_open_bytes, held_bytes, gathered_bytes or workers, or capture less at a time"
    return SinkError(f"the capture ran out of memory; {remedy}")


def _check_stored(stored: Stored, method: str) -> None:
    if not isinstance(stored, Stored) or not isinstance(stored.path, str | None):
        raise TypeError(f"{method}() returned {stored!r} for a file; it must be a Stored")
