"""Plan: an analysis as a list of tasks, each of which leaves one part. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import IO, Any, NamedTuple, Protocol

import xxhash

#: What the names and the content of parts are like; parts of other numbers are refused.
FORMAT = 1


class Task(Protocol):
    """Work that needs nothing but what it reads; can be sent to other processes, and has no credentials."""

    @property
    def label(self) -> str:
        """What it reads, in messages."""

    def open(self) -> OpenTask:
        """Return the work on what there is to read now.

        Raises:
            DumpstreamError: it cannot be read at all.
        """


class OpenTask(Protocol):
    """A task whose input is open."""

    @property
    def digest(self) -> str:
        """A hash of the input."""

    def write(self, file: IO[bytes], heading: Heading) -> None:
        """Do the work, and write the part with its *heading*."""


class Heading(NamedTuple):
    """What a part says of itself."""

    plan: str  #: the key of its plan
    task: int  #: its number in the plan, counted from 1
    tasks: int  #: in the plan
    label: str  #: what was read
    request: Mapping[str, Any]  #: what was asked: a JSON object with the command and its options
    version: str  #: of dumpstream

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps({"format": FORMAT, **self._asdict()})

    @classmethod
    def from_json(cls, text: bytes | str) -> Heading:
        """Return what `to_json` wrote; raises `ValueError`, `LookupError` or `TypeError` otherwise."""
        found = json.loads(text)
        if found.pop("format") != FORMAT:
            raise ValueError(FORMAT)
        heading = cls(**found)
        if not isinstance(heading.request, dict):
            raise TypeError(heading.request)
        return heading


@dataclass(frozen=True)
class Plan:
    """All tasks of one analysis; the same for all who make it of the same request and manifests."""

    request: Mapping[str, Any]  #: what is asked: a JSON object with the command and its options
    tasks: Sequence[Task]

    @cached_property
    def key(self) -> str:
        """What parts of the same plan have in common."""
        inputs = [self.request, [task.label for task in self.tasks], version("dumpstream"), FORMAT]
        return xxhash.xxh3_64_hexdigest(json.dumps(inputs, sort_keys=True).encode())

    def heading(self, number: int) -> Heading:
        """Return what the part of the task *number*, counted from 0, says of itself."""
        label = self.tasks[number].label
        return Heading(self.key, number + 1, len(self.tasks), label, self.request, version("dumpstream"))

    def of_shard(self, shard: Shard) -> Iterator[int]:
        """Yield the numbers of the tasks that *shard* computes."""
        return iter(range(shard.number - 1, len(self.tasks), shard.count))


class Shard(NamedTuple):
    """One of *count* equal shares of a plan."""

    number: int  #: counted from 1
    count: int  # type: ignore[assignment]  # hides tuple.count

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard that ``K/N`` stands for; raises `ValueError`."""
        number, slash, count = text.partition("/")
        if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
            return cls(int(number), int(count))
        raise ValueError(f"{text!r} is not a shard; write K/N with K from 1 to N, such as 3/16")
