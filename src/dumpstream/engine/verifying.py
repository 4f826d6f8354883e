"""Verifying: one capture verified as a task, and what came out for all parts put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import xxhash

from dumpstream.engine.part import Part, PartWriter, decoded
from dumpstream.engine.plan import Heading
from dumpstream.engine.portion import Portion, digest_of, portions_of, slice_result, sliced
from dumpstream.reading.collection import Collection, HostCaptures, Member
from dumpstream.reading.problem import Kind, Problem
from dumpstream.reading.stored import State
from dumpstream.reading.verification import NUMBERS, Verification, roots_of, verify_member, verify_root
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.system.location import Prefix

_KIND, _SUBJECT, _DETAIL = Problem._fields
_LEFTOVER = "leftover"


@dataclass(frozen=True)
class Verifying:
    """Verifies one capture."""

    portion: Portion
    deep: bool
    workers: int | None = None  #: threads

    @property
    def label(self) -> str:
        return str(self.portion)

    def open(self) -> _OpenVerifying:
        require_pyarrow()
        member = self.portion.read()
        assert member is not None
        return _OpenVerifying(self, member)


@dataclass(frozen=True)
class _OpenVerifying:
    task: Verifying
    member: Member

    @cached_property
    def digest(self) -> str:
        return digest_of(self.task.portion, self.member)

    def write(self, file: IO[bytes], heading: Heading) -> None:
        portion = self.task.portion
        result = verify_member(
            self.member, deep=self.task.deep, workers=self.task.workers, within=portion.within
        )
        state = None if self.member.capture is None else str(result.state)
        _write(file, heading, result, state, slice_result(portion, self.digest))


class VerifyingRoot(NamedTuple):
    """Looks for what is in no capture of one host, or of the only one."""

    location: Path | Prefix
    below: str  #: as `HostCaptures.below`

    @property
    def label(self) -> str:
        return f"{self.location}, outside of its captures"

    def open(self) -> _OpenRoot:
        require_pyarrow()
        (host,) = Collection.open(self.location).hosts
        return _OpenRoot(replace(host, below=self.below))


class _OpenRoot(NamedTuple):
    host: HostCaptures

    @property
    def digest(self) -> str:
        """A hash of the list of processes; files that appear beside the captures do not change it."""
        directories = "\n".join(process.directory for process in self.host.known)
        return xxhash.xxh3_128_hexdigest(directories.encode())

    def write(self, file: IO[bytes], heading: Heading) -> None:
        _write(file, heading, verify_root(self.host), None, {})


def verifying_tasks(collection: Collection, *, deep: bool) -> list[Verifying | VerifyingRoot]:
    """Return a task for each capture of *collection*, and one for what is beside those of each host."""
    portions = portions_of(collection)
    if deep or isinstance(collection.path, Path):  # elsewhere, a store is only asked what it has
        portions = sliced(portions)
    tasks: list[Verifying | VerifyingRoot] = [Verifying(it, deep) for it in portions]
    return [*tasks, *(VerifyingRoot(host.place.path, host.below) for host in roots_of(collection))]


def verification_of(parts: Iterable[Part]) -> tuple[Verification, list[State]]:
    """Return what came out for all *parts*, and the states of their captures."""
    total = Verification(State.FINISHED)
    states = []
    for part in parts:
        total.add(_read(part))
        state = part.result["state"]
        states += [] if state is None else [State(state)]
    return total, states


def _write(
    file: IO[bytes], heading: Heading, result: Verification, state: str | None, more: Mapping[str, Any]
) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    schema = pa.schema([(name, pa.binary()) for name in Problem._fields])
    rows: list[tuple[Any, ...]] = [(str(kind), subject, detail) for kind, subject, detail in result.problems]
    rows += [(_LEFTOVER, path, "") for path in result.leftovers]
    with PartWriter(file, heading, schema) as part:
        if rows:
            part.write_columns(dict(zip(Problem._fields, zip(*rows, strict=True), strict=True)))
        part.close({**{name: getattr(result, name) for name in NUMBERS}, "state": state, **more})


def _read(part: Part) -> Verification:
    result = Verification(State.FINISHED)
    for name in NUMBERS:
        setattr(result, name, int(part.result[name]))
    for table in part.tables():
        columns = [[decoded(it) or "" for it in table.column(name).to_pylist()] for name in Problem._fields]
        for kind, subject, detail in zip(*columns, strict=True):
            if kind == _LEFTOVER:
                result.leftovers.append(subject)
            else:
                result.problems.append(Problem(Kind(kind), subject, detail))
    return result
