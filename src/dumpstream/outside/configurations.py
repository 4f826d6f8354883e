"""Configurations: the dump configurations that a process has put in force, as its agent reports them.

None of it is trusted: its size is bounded, and what cannot be understood is kept as a problem.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from xxhash import xxh3_128_digest

from dumpstream.archive.manifest import ENVIRONMENT, LONGEST_CONFIG, Configured
from dumpstream.archive.rows import timestamp
from dumpstream.outside.wire import LONGEST_PROBLEM, ConfigPart

#: How many different ones are kept; a program that sets one for every step alternates between a few.
_MOST = 64
_MOST_WAITING = 4 << 20  #: bytes that are not read yet
#: Values in one of them, counted by its commas: checking them keeps the interpreter from other threads.
_MOST_VALUES = LONGEST_CONFIG // 16
_TOO_MANY = f"not kept: {_MOST} others had come before"
_TOO_FAST = "not kept: too many came at once"
_TOO_LONG = f"not kept: together they have more than {LONGEST_CONFIG >> 10} KiB"
_TOO_FULL = f"not read: it has more than {_MOST_VALUES} values"
_LOST = "did not reach the collector, which was slow"
_CUT_OFF = "did not reach the collector as a whole"


class _Key(NamedTuple):
    """What two reports of the same configuration have in common."""

    by: str
    call: str
    path: str
    content: bytes | str = b""  #: its checksum, or why it is not known


class Configurations:
    """The configurations of one process, which has *environment*.

    `hear` takes the pieces as they come, on the event loop; `read`, which blocks, parses them later.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment: Mapping[str, str] | None = environment if any(environment.values()) else None
        self._switched_on: list[Configured] = []  # by the environment
        self._kept: dict[_Key, Configured] = {}  # in the order in which they came last
        self._waiting: list[tuple[Configured, bytes]] = []
        self._begun: ConfigPart | None = None  # the first piece of one that is not complete
        self._text = bytearray()
        self._lost = 0
        self._quota = LONGEST_CONFIG

    @property
    def told(self) -> list[Configured]:
        """What is known so far, the latest last."""
        return [replace(it) for it in (*self._switched_on, *self._kept.values())]

    @property
    def unread(self) -> bool:
        """Whether `read` has something to do."""
        return bool(self._waiting or self._environment)

    def hear(self, part: ConfigPart) -> bool:
        """Take a piece of a configuration; return whether one is complete now that was not known."""
        before = len(self._kept)
        self.hear_of_losses(part.lost)
        if part.problem is not None:
            self._keep(_Key(part.by, part.call, part.path, part.problem))
        elif part.offset == 0 or self._continues(part):
            self._append(part)
        return len(self._kept) > before

    def hear_of_losses(self, lost: int) -> None:
        """Take the total number of configurations that the agent could not report."""
        if lost > self._lost:
            self._begun = None  # it is one of those
            self._keep(_Key("program", "", "", _LOST), times=lost - self._lost)
            self._lost = lost

    def hear_no_more(self) -> None:
        """Expect no more pieces, not even the rest of a configuration that has begun."""
        if self._begun is not None:
            self._keep(_Key(self._begun.by, self._begun.call, self._begun.path, _CUT_OFF))
            self._begun = None

    def read(self) -> None:
        """Parse what has come; blocks."""
        if self._environment is not None:
            self._read_environment(self._environment)
            self._environment = None
        while self._waiting:  # `hear` may add to it meanwhile
            self._read(*self._waiting.pop(0))

    def _continues(self, part: ConfigPart) -> bool:
        begun = self._begun
        return (
            begun is not None
            and (part.by, part.call, part.path, part.size) == (begun.by, begun.call, begun.path, begun.size)
            and part.offset == len(self._text)
        )

    def _append(self, part: ConfigPart) -> None:
        if part.offset == 0:
            self._begun = part
            self._text.clear()
        self._text += part.text
        if len(self._text) >= part.size:
            text = bytes(self._text[: part.size])
            self._begun = None
            self._text = bytearray()
            if text:  # an empty file changes nothing
                self._keep(_Key(part.by, part.call, part.path, xxh3_128_digest(text)), text)

    def _keep(self, key: _Key, text: bytes | None = None, *, times: int = 1) -> None:
        """Record that it came, and if it is not known yet, let `read` parse it."""
        if key not in self._kept and len(self._kept) >= _MOST:
            key, text = _Key("program", "", "", _TOO_MANY), None
        entry, now = self._kept.pop(key, None), timestamp()
        if entry is None:
            entry = Configured(by=key.by, call=key.call, path=key.path, first=now, last=now, times=0)
            if text is None:
                entry.problem = str(key.content)
            elif sum(len(it) for _, it in self._waiting) + len(text) <= _MOST_WAITING:
                self._waiting.append((entry, text))
            else:
                entry.problem = _TOO_FAST
        entry.last, entry.times = now, entry.times + times
        self._kept[key] = entry

    def _read(self, entry: Configured, text: bytes) -> None:
        from dumpstream.config import Problem, parse_config  # noqa: PLC0415 - pydantic takes long to load

        if text.count(b",") >= _MOST_VALUES:
            entry.problem = _TOO_FULL
        elif isinstance(found := parse_config(text), Problem):
            entry.problem = found.message[:LONGEST_PROBLEM]
        else:
            config = found.as_dict()
            length = len(json.dumps(config))
            if length <= self._quota:
                self._quota -= length
                entry.config = config
            else:
                entry.problem = _TOO_LONG

    def _read_environment(self, environment: Mapping[str, str]) -> None:
        from dumpstream.config import switched_on_by  # noqa: PLC0415 - pydantic takes long to load

        # Whether the process can make a directory is not for the collector to tell.
        if (switch := switched_on_by(environment, disk=False)) is not None:
            now = timestamp()
            config = {"dump": {"dump_scene": switch.scene}}
            entry = Configured(by=ENVIRONMENT, call="", path=switch.name, first=now, last=now, config=config)
            self._switched_on = [entry]
