"""Outlet: a sink as the pipeline calls it, whose mistakes become errors of that sink."""

from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from dumpstream._errors import SinkError
from dumpstream.sinks import Sink, SinkFile, Stored, WholeFile


class Outlet(NamedTuple):
    """A sink, and what the journal calls it."""

    label: str
    sink: Sink

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        """Put *files*, and check that the sink answers for each of them."""
        results = list(await self.sink.put(files))
        if len(results) != len(files):
            raise TypeError(f"put() returned {len(results)} results for {len(files)} files")
        for result in results:
            if not isinstance(result, SinkError):
                _check_stored(result, "put")
        return results


async def write_pieces(file: SinkFile, pieces: Sequence[Buffer], *, commit: bool) -> Stored | None:
    """Write *pieces* to *file*; if asked to *commit*, return where the file went."""
    if pieces:
        await file.write(pieces)
    if not commit:
        return None
    stored = await file.commit()
    _check_stored(stored, "commit")
    return stored


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
