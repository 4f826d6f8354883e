"""Collection: the captures of a location: one, or one for each of several processes, of one host or many."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream.archive.job import safe_host
from dumpstream.archive.manifest import Manifest, Process
from dumpstream.archive.place import JobEntries, Place, WritingProcess
from dumpstream.reading.stored import State, StoredCapture, open_place
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix

_REFUSED = "was refused, and ran without being captured"
_NUMBER = re.compile(r"([0-9]+)")
_SHOWN = 8  #: names that an error lists


class Member(NamedTuple):
    """A capture and, if it is one of several, its process and its host."""

    capture: StoredCapture | None
    process: Process | None = None
    problem: str | None = None  #: why there is no capture
    host: str | None = None  #: the name of its host, if that is one of a job
    below: str = ""  #: the path of its host, with a slash at the end, if the location is a job
    beginning: bool = False  #: whether there is no capture because it has just begun

    @property
    def prefix(self) -> str:
        """The beginning of the names of its files, by which those of several processes differ."""
        directory = "" if self.process is None else self.process.directory
        return f"{self.below}{directory}/" if directory else self.below

    @property
    def rank(self) -> int | None:
        return None if self.process is None else self.process.rank

    @property
    def label(self) -> str:
        """What messages call it, such as ``node-7/rank-3``."""
        if self.process is None or self.process.directory:
            return self.prefix.rstrip("/")
        return f"{self.below}process {self.process.pid}"


@dataclass(eq=False)
class HostCaptures:
    """What one host has captured, as its manifest said; the members are read one by one."""

    place: Place
    manifest: Manifest | None  #: None if it cannot be read, because of *problem*
    writer: WritingProcess | None = None  #: the process that is writing it, if any
    processes: Sequence[Process] | None = None  #: those asked for, by rank; None if it has no list of them
    name: str | None = None  #: of the host, if it is one of a job
    below: str = ""  #: as `Member.below`
    problem: str | None = None

    @property
    def known(self) -> Sequence[Process]:
        """All processes on its list, also those that were not asked for."""
        return () if self.manifest is None else self.manifest.processes

    @property
    def state(self) -> State:
        """The state as far as the manifest alone tells it."""
        if self.writer is not None:
            return State.RUNNING
        if self.manifest is None:
            return State.INTERRUPTED
        unended = any(it.directory and it.ended is None for it in self.processes or ())
        unended |= bool(self.manifest.runs) and not self.manifest.finished
        return State.INTERRUPTED if unended else State.FINISHED

    def readers(self) -> Iterator[Callable[[], Member]]:
        """Yield what reads each capture; raises `NotACaptureError` then if the only one cannot be read."""
        if self.manifest is None:
            member = Member(None, problem=self.problem, host=self.name, below=self.below)
            yield partial(member._replace, beginning=self.writer is not None)
        elif self.processes is None:
            yield self._read_only_one
        else:
            yield from (partial(read_member, self.place, it, self.name, self.below) for it in self.processes)

    def _read_only_one(self) -> Member:
        member = Member(None, host=self.name, below=self.below)
        try:
            return member._replace(capture=StoredCapture.read(self.place))
        except NotACaptureError as exc:
            if not self.below:
                raise
            return member._replace(problem=str(exc))  # those of other hosts can be read all the same


def read_member(place: Place, process: Process, host: str | None, below: str) -> Member:
    """Return the capture of *process*, one of those of a *host* at *place*, or why there is none."""
    member = Member(None, process, host=host, below=below)
    if not process.directory:
        return member._replace(problem=process.problem or _REFUSED)
    try:
        return member._replace(capture=StoredCapture.read(place.member(process.directory)))
    except NotACaptureError as exc:
        beginning = process.ended is None and place.find_writer() is not None
        return member._replace(problem=str(exc), beginning=beginning)


@dataclass(eq=False)
class Collection:
    """Captures as they were when they were opened."""

    place: Place
    hosts: Sequence[HostCaptures]  #: those asked for, by name; one without a path of its own, if not a job
    job: JobEntries | None = None  #: what it consists of, if it is a job

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Prefix | Any,
        ranks: Iterable[int] = (),
        hosts: Iterable[str] = (),
    ) -> Collection:
        """Read the manifests of the captures at *path*, also while they are written.

        Of a job, one manifest is read for each host, several at once.

        Args:
            path: a directory, a URL such as ``s3://bucket/run``, or a store of obstore: that of a capture, of
                the captures of several processes, or of a job of several hosts.
            ranks: only the processes of these; by default all.
            hosts: only these of a job; by default all.

        Raises:
            NotACaptureError: there is no capture, or one that this version cannot read.
            StoreError: *path* is a URL that is not valid, or the store refuses or does not answer.
            DumpstreamError: there is no process of one of the *ranks*, or none of the *hosts*.
        """
        place = open_place(path)
        wanted, names = set(ranks), set(hosts)
        # Before the manifest: if the capture ends in between, the manifest has all its processes.
        writer = place.find_writer()
        try:
            manifest = place.read_manifest()
        except NotACaptureError:
            entries = place.list_job()
            if entries is None:
                raise
            hosts_read = _read_hosts(place, entries.hosts, wanted, names)
            return cls(place, hosts_read, job=entries)
        if names and {*map(_safe, names)} != {manifest.host}:
            whose = (
                "is not a job of several hosts" if manifest.host is None else f"is the host {manifest.host}"
            )
            raise DumpstreamError(f"{place.path} {whose}; leave --host out")
        if manifest.runs and wanted:
            raise DumpstreamError(f"{place.path} is the capture of one process; leave --rank out")
        found = _captures(place, manifest, wanted, writer=writer, name=manifest.host)
        if not manifest.runs:
            _check_ranks(place.path, wanted, manifest.processes)
        return cls(place, [found])

    @property
    def path(self) -> Path | Prefix:
        return self.place.path

    @property
    def processes(self) -> Sequence[Process] | None:
        """The processes asked for; None if it is the capture of one process, which is not on a list."""
        lists = [host.processes for host in self.hosts]
        if self.job is None and lists == [None]:
            return None
        return [process for of_host in lists for process in of_host or ()]

    def members(self) -> Iterator[Member]:
        """Yield every capture, read in its turn; raises `NotACaptureError` if the only one cannot be read."""
        readers = (read for host in self.hosts for read in host.readers())
        if isinstance(self.path, Path):
            yield from (read() for read in readers)
            return
        # Each takes some requests: those that come next are read meanwhile.
        yield from run_batches(
            lambda some: [read() for read in some], readers, bytes_of=lambda _: 0, is_remote=lambda _: True
        )

    def state(self, members: Iterable[State]) -> State:
        """Return the state of the whole, given those of its members."""
        # A capture of one process says more about its own state than its manifest does.
        states = [host.state for host in self.hosts if host.processes is not None or host.manifest is None]
        return state_of([*states, *members])


def state_of(states: Sequence[State]) -> State:
    """Return the state of a whole that consists of captures with these *states*."""
    return next((it for it in (State.RUNNING, State.INTERRUPTED) if it in states), State.FINISHED)


def _captures(place: Place, manifest: Manifest, wanted: set[int], **about: Any) -> HostCaptures:
    if manifest.runs:
        return HostCaptures(place, manifest, **about)
    chosen = [process for process in manifest.processes if not wanted or process.rank in wanted]
    chosen.sort(key=lambda process: (process.rank is None, process.rank))
    return HostCaptures(place, manifest, processes=chosen, **about)


def _read_hosts(
    place: Place, directories: Iterable[str], wanted: set[int], names: Iterable[str]
) -> list[HostCaptures]:
    """Return what the hosts in *directories* have captured, by name."""
    known = sorted(directories, key=by_number)
    chosen = {directory: None for directory in known if not names}
    for name in names:
        directory = _safe(name)
        if directory not in known:
            raise DumpstreamError(f"{place.path} has no host {name}; {_listed('it has', known)}")
        chosen[directory] = None
    read = partial(_read_host, place, wanted)
    # Each is a request, or on a shared disk a round trip: many threads wait at once.
    found = run_batches(
        lambda some: [*map(read, some)],
        sorted(chosen, key=by_number),
        bytes_of=lambda _: 0,
        is_remote=lambda _: True,
    )
    hosts = [*found]
    _check_ranks(place.path, wanted, [it for host in hosts for it in host.known])
    return [host for host in hosts if not wanted or host.processes or host.manifest is None]


def _read_host(place: Place, wanted: set[int], directory: str) -> HostCaptures:
    """Return what the host in *directory* has captured; the lock is looked at only if it may be capturing."""
    about: dict[str, Any] = {"name": directory, "below": f"{directory}/"}
    own, writer = place, None
    try:
        own = place.member(directory)
        manifest = own.read_manifest()
        if not manifest.finished and (writer := own.find_writer()) is None:
            manifest = own.read_manifest()  # it may have ended in between
        return _captures(own, manifest, wanted, writer=writer, **about)
    except NotACaptureError as exc:
        writer = None if own is place else own.find_writer()  # it may have just begun
        return HostCaptures(own, None, writer, problem=str(exc), **about)


def _safe(name: str) -> str:
    try:
        return safe_host(name)
    except ValueError as exc:
        raise DumpstreamError(str(exc)) from None


def by_number(name: str) -> list[tuple[int, str]]:
    """Return what *name* is sorted by, so that ``node-10`` comes behind ``node-9``."""
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]


def _listed(what: str, names: Sequence[object]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what} {', '.join(map(str, names[:_SHOWN]))}{more}" if names else "no host has begun there"


def _check_ranks(path: Path | Prefix, wanted: set[int], processes: Sequence[Process]) -> None:
    known = {process.rank for process in processes if process.rank is not None}
    if missing := sorted(wanted - known):
        have = _listed("it has", sorted(known)) if known else "no process there has one"
        raise DumpstreamError(f"{path} has no rank {missing[0]}; {have}")
