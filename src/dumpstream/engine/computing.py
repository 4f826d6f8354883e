"""Computing: a task in, its part out, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from dumpstream._errors import DumpstreamError, StoreError
from dumpstream.engine.part import PartName
from dumpstream.engine.partsplace import PartsPlace
from dumpstream.engine.plan import Heading, Plan, Task


class Failure(NamedTuple):
    """A task that could not be done, because of what it reads."""

    task: int  #: its number, counted from 1
    label: str  #: what it reads
    problem: str

    def __str__(self) -> str:
        return f"{self.label}: {self.problem}"


class Computed(NamedTuple):
    """How far the tasks of a plan are."""

    done: int = 0  #: tasks whose parts are there by now,
    kept: int = 0  #: and those among them whose parts were there before
    failures: tuple[Failure, ...] = ()
    names: frozenset[str] = frozenset()  #: of their parts, if a cluster has computed them


def compute_kept(
    plan: Plan, numbers: Iterable[int], place: PartsPlace, tell: Callable[[int], None]
) -> Computed:
    """Compute the tasks *numbers*, counted from 0, one after another, and keep their parts at *place*.

    A part that is there, and was made of the same input, is not computed again. A task that fails does not
    keep others from being done. *tell* is called with the tasks that are done.

    Raises:
        StoreError: a store does not answer, and so for all other tasks.
        DestinationError: *place* cannot be written.
    """
    there = {*place.names()}
    computed = Computed()
    for number in numbers:
        heading = plan.heading(number)
        try:
            kept = _compute(plan.tasks[number], heading, place, there)
        except _InputError as exc:
            failure = Failure(heading.task, heading.label, str(exc))
            computed = computed._replace(failures=(*computed.failures, failure))
        else:
            computed = computed._replace(done=computed.done + 1, kept=computed.kept + kept)
        tell(computed.done + len(computed.failures))
    return computed


def compute_apart(task: Task, heading: Heading) -> tuple[str, bytes] | Failure:
    """Return the name and the bytes of the part of *task*, or why there is none.

    Raises:
        StoreError: a store does not answer; a later attempt may succeed.
    """
    try:
        with _input(), TemporaryFile() as file:
            name = _write(task, heading, file)
            return name, file.read()
    except _InputError as exc:
        return Failure(heading.task, heading.label, str(exc))


def _compute(task: Task, heading: Heading, place: PartsPlace, there: set[str]) -> bool:
    """Keep the part of *task* at *place*; return whether it was among those that are *there*."""
    with TemporaryFile() as file:
        with _input():
            opened = task.open()
            name = str(PartName.of(heading, opened.digest))
            if name in there:
                return True
            opened.write(file, heading)
        file.seek(0)
        place.write(name, file)
    return False


def _write(task: Task, heading: Heading, file: IO[bytes]) -> str:
    opened = task.open()
    opened.write(file, heading)
    file.seek(0)
    return str(PartName.of(heading, opened.digest))


class _InputError(Exception):
    """What a task reads cannot be read."""


@contextmanager
def _input() -> Iterator[None]:
    """Turn what the input of a task is to blame for into an `_InputError`."""
    try:
        yield
    except StoreError as exc:
        if exc.away:
            raise
        raise _InputError(str(exc)) from exc
    except (DumpstreamError, OSError) as exc:
        raise _InputError(str(exc)) from exc
