"""Wire: the messages between an agent and its collector, bounded and checked before they are used.

A message is one packet: its kind and ``key=value`` fields, each ended by a NUL. Unknown fields are ignored.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dumpstream.archive.excerpt import excerpt_words

MAX_MESSAGE_BYTES = 64 << 10
#: Of the messages and of the ring that they offer: an agent maps rings of its own version only.
VERSION = 2
LONGEST_PROBLEM = 200  #: characters of the reason why a configuration is not known

_MAX_NUMBER = (1 << 31) - 1
_MAX_WORDS = 4096
_MAX_KEYS = 64  # an agent sends a dozen
_RANK = ("RANK", "RANK_ID", "MS_NODE_ID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")
_DEVICE = ("DEVICE_ID", "LOCAL_RANK")
_DUMPING = ("ASCEND_DUMP_SCENE", "NPU_COLLECT_PATH")
_MAX_CONFIG_BYTES = 1 << 20
_LONGEST_CALL = 64
#: Bytes that the manifest has for the command line of a process.
_LONGEST_COMMAND = 2 << 10
_LONGEST_PATH = 4096
_NO_TEXT = "its text was not sent"
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


@dataclass(slots=True, eq=False)
class Message:
    """One packet. Its values are not trusted, and only taken apart once one of them is asked for."""

    kind: str
    _text: bytes  #: what follows the kind
    _fields: Mapping[str, Sequence[bytes]] | None = None

    @property
    def fields(self) -> Mapping[str, Sequence[bytes]]:
        """Every value of a key, in order."""
        if self._fields is None:
            self._fields = _fields_in(self._text)
        return self._fields

    def text(self, key: str) -> str:
        """Return the first value of *key*, or an empty text; invalid UTF-8 becomes surrogate escapes."""
        return os.fsdecode(self.fields.get(key, (b"",))[0])

    def number(self, key: str) -> int | None:
        """Return the first value of *key* if it is a number from 0 to 2**31 - 1."""
        text = self.fields.get(key, (b"",))[0]
        return _number(text)


class ConfigPart(NamedTuple):
    """A piece of a dump configuration that a process has put in force."""

    by: str  #: ``program`` or ``agent``
    call: str
    path: str
    lost: int  #: configurations that could not be reported before it
    size: int  #: of the whole
    offset: int  #: of the piece
    text: bytes
    problem: str | None  #: why only the path is known


class Hello(NamedTuple):
    """How a process introduces itself."""

    version: int | None
    parent: int
    command: Sequence[str]  #: its beginning, if it is long
    rank: int | None
    device: int | None
    local_size: int | None  #: processes of the job on this machine, if the launcher says so
    environment: Mapping[str, str]  #: those of its variables that switch exception dumps on


def encode(kind: str, fields: Iterable[tuple[str, str | int]] = ()) -> bytes:
    """Return the packet for a message; NULs in values become spaces."""
    words = [kind, *(f"{key}={value}".replace("\0", " ") for key, value in fields), ""]
    return os.fsencode("\0".join(words))


def decode(packet: bytes) -> Message:
    """Return the message in *packet*.

    Raises:
        ValueError: it is not a message.
    """
    if not packet.endswith(b"\0") or len(packet) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a packet of {len(packet)} bytes is not a message")
    kind, _, text = packet[:-1].partition(b"\0")
    if not kind.isalpha():
        raise ValueError(f"{kind[:32]!r} is not a kind of message")
    return Message(kind.decode("ascii"), text)


def parse_hello(message: Message) -> Hello:
    """Return how a process introduces itself; what is not a number is left out."""
    return Hello(
        version=message.number("version"),
        parent=message.number("parent") or 0,
        command=excerpt_words(message.fields.get("argv", ()), _LONGEST_COMMAND),
        rank=_first(message, _RANK),
        device=_first(message, _DEVICE),
        local_size=_first(message, _LOCAL_SIZE) or None,
        environment={name: message.text(f"env.{name}") for name in _DUMPING},
    )


def parse_config_part(message: Message) -> ConfigPart:
    """Return the piece in *message*; without a valid length, only that there was a configuration."""
    size = message.number("size")
    problem = None if size is not None and size <= _MAX_CONFIG_BYTES else message.text("problem") or _NO_TEXT
    return ConfigPart(
        by="agent" if message.text("by") == "agent" else "program",
        call=call_of(message),
        path=message.text("path")[:_LONGEST_PATH],
        lost=message.number("lost") or 0,
        size=size or 0,
        offset=message.number("offset") or 0,
        text=message.fields.get("text", (b"",))[0],
        problem=None if problem is None else problem[:LONGEST_PROBLEM],
    )


def local_size_in(environment: Mapping[str, str]) -> int | None:
    """Return how many processes a job that is started in *environment* has here, if a launcher says so."""
    numbers = (_number(os.fsencode(environment.get(variable, ""))) for variable in _LOCAL_SIZE)
    return next((number for number in numbers if number), None)


def call_of(message: Message) -> str:
    """Return the ACL function that a message is about."""
    name = message.text("call")[:_LONGEST_CALL]
    return name if name.isidentifier() else "an ACL function"


def _fields_in(text: bytes) -> Mapping[str, Sequence[bytes]]:
    values: dict[bytes, list[bytes]] = {}
    for word in text.split(b"\0", _MAX_WORDS)[:_MAX_WORDS]:
        key, equals, value = word.partition(b"=")
        if equals and (key in values or len(values) < _MAX_KEYS):
            values.setdefault(key, []).append(value)
    return {os.fsdecode(key): found for key, found in values.items()}


def _number(text: bytes) -> int | None:
    if not text.isdigit() or len(text) > len(str(_MAX_NUMBER)) or int(text) > _MAX_NUMBER:
        return None
    return int(text)


def _first(message: Message, variables: Iterable[str]) -> int | None:
    numbers = (message.number(f"env.{variable}") for variable in variables)
    return next((number for number in numbers if number is not None), None)
