"""The messages between an agent and its collector: bounded, and checked before anything in them is used.

A message is one packet: its kind and ``key=value`` fields, each ended by a NUL. What is not known is ignored.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_MESSAGE_BYTES = 64 << 10
VERSION = 1

_MAX_NUMBER = (1 << 31) - 1
_MAX_WORDS = 4096
_RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")
_DEVICE = ("DEVICE_ID", "LOCAL_RANK")
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


class Message(NamedTuple):
    """One packet, taken apart; the values are the peer's own."""

    kind: str
    fields: Mapping[str, Sequence[bytes]]  #: every value of a key, in order

    def text(self, key: str) -> str:
        """Return the first value of *key*, or nothing; bytes that are not UTF-8 as surrogate escapes."""
        return os.fsdecode(self.fields.get(key, (b"",))[0])

    def number(self, key: str) -> int | None:
        """Return the first value of *key* if it is a number from 0 to 2**31 - 1."""
        text = self.fields.get(key, (b"",))[0]
        if not text.isdigit() or len(text) > len(str(_MAX_NUMBER)) or int(text) > _MAX_NUMBER:
            return None
        return int(text)


class Hello(NamedTuple):
    """How a process introduces itself."""

    version: int | None
    parent: int
    command: tuple[str, ...]
    rank: int | None
    device: int | None
    local_size: int | None  #: processes of the job on this machine, if the launcher says


def encode(kind: str, fields: Iterable[tuple[str, str | int]] = ()) -> bytes:
    """Return the packet for a message; a value's NULs become spaces."""
    words = [kind, *(f"{key}={value}".replace("\0", " ") for key, value in fields), ""]
    return os.fsencode("\0".join(words))


def decode(packet: bytes) -> Message:
    """Return the message in *packet*.

    Raises:
        ValueError: it is none.
    """
    if not packet.endswith(b"\0") or len(packet) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a packet of {len(packet)} bytes is no message")
    kind, *words = packet[:-1].split(b"\0", _MAX_WORDS)
    if not kind.isalpha():
        raise ValueError(f"a message has no kind {kind[:32]!r}")
    values: dict[str, list[bytes]] = {}
    for word in words:
        key, equals, value = word.partition(b"=")
        if equals:
            values.setdefault(os.fsdecode(key), []).append(value)
    return Message(kind.decode("ascii"), values)


def parse_hello(message: Message) -> Hello:
    """Return who a process says it is; numbers that are none are left out."""
    return Hello(
        version=message.number("version"),
        parent=message.number("parent") or 0,
        command=tuple(os.fsdecode(word) for word in message.fields.get("argv", ())),
        rank=_first(message, _RANK),
        device=_first(message, _DEVICE),
        local_size=_first(message, _LOCAL_SIZE) or None,
    )


def _first(message: Message, variables: Iterable[str]) -> int | None:
    numbers = (message.number(f"env.{variable}") for variable in variables)
    return next((number for number in numbers if number is not None), None)
