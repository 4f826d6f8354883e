"""Chunks to feed to a reassembler, and a runner that plays the capture around it."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.conftest import varint

from dumpstream._native import Chunk
from dumpstream.reassemble import Reassembler, ReassemblyOptions
from dumpstream.stages.events import End, Event, Held, Hold, Part, Piece, Recall, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dumpstream.format.verdict import Verdict
    from dumpstream.stages.assembly import File

NAME = "/dump//20260101/0/model/1/0/MatMul.op.1.2.3"
TEXT = "/dump/stats/MatMul.op.1.2.3.csv"


class Ended(NamedTuple):
    name: str
    verdict: Verdict
    parts: dict[int, bytes]
    file: File | None


class Runner:
    """Plays the capture: keeps what is held, answers recalls, joins pieces."""

    def __init__(self, options: ReassemblyOptions | None = None) -> None:
        self.reassembler = Reassembler(options)
        self.kept: dict[Held, bytes] = {}
        self.written: dict[Part, bytearray] = defaultdict(bytearray)
        self.ended: list[Ended] = []

    def feed(self, *chunks: Chunk, now: float = 0.0) -> None:
        self.handle(self.reassembler.feed(chunks, now))

    def lose(self, name: str, size: int = 100, *, ended: bool = False, now: float = 0.0) -> None:
        self.handle(self.reassembler.lose(name, "ring_full", size, ended=ended, now=now))

    def expire(self, now: float) -> None:
        self.handle(self.reassembler.expire(now))

    def finish(self, cut_off: str | None = None) -> list[Ended]:
        self.handle(self.reassembler.finish(cut_off))
        assert not self.kept
        assert self.reassembler.open_files == 0
        return self.ended

    def run(self, batches: Iterable[Sequence[Chunk]]) -> list[Ended]:
        for batch in batches:
            self.feed(*batch)
        return self.finish()

    def handle(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Whole(chunk, verdict):
                    self.ended.append(Ended(chunk.name, verdict, {0: bytes(chunk)}, None))
                case Piece(part, data):
                    assert memoryview(data).nbytes > 0
                    self.written[part] += data
                case Hold(held, data):
                    assert held not in self.kept
                    assert held.length == memoryview(data).nbytes
                    self.kept[held] = bytes(data)
                case Recall(held):
                    self.handle(self.reassembler.restore(held, self.kept.pop(held)))
                case End(file):
                    parts = {part.offset: bytes(self.written.pop(part, b"")) for part in file.parts}
                    assert [len(data) for data in parts.values()] == [part.size for part in file.parts]
                    assert file.bytes == sum(map(len, parts.values()))
                    self.ended.append(Ended(file.name, file.verdict, parts, file))

    @property
    def only(self) -> tuple[Verdict, bytes, File]:
        """The one file that has ended, if it has no parts behind gaps."""
        [(_, verdict, parts, file)] = self.ended
        assert file is not None
        assert list(parts) == [0]
        return verdict, parts[0], file


def dump(size: int, *, absent: int = 0, padding: int = 0) -> bytes:
    """Return a dump file with one tensor of *size* bytes and one of *absent* bytes at a null address."""
    output = b"\x30" + varint(size) + b"\x48\x01"
    message = b"\x0a\x032.0\x1a" + varint(len(output)) + output
    if absent:
        output = b"\x30" + varint(absent)
        message += b"\x1a" + varint(len(output)) + output
    if padding:
        message += b"\x32" + varint(padding) + b"n" * padding
    return struct.pack("<Q", len(message)) + message + bytes(i * 7 % 251 for i in range(size))


def at(offset: int, data: bytes, *, is_last: bool = False, sequence: int = 0, more: bool = False) -> Chunk:
    return Chunk(NAME, data, offset=offset, is_last=is_last, sequence=sequence, more=more)


def more(data: bytes, *, is_last: bool = False, name: str = NAME) -> Chunk:
    return Chunk(name, data, is_last=is_last)


def record(sequence: int, data: bytes, *, final: bool, is_last: bool = False, name: str = NAME) -> Chunk:
    return Chunk(name, data, is_last=is_last, sequence=sequence, more=not final)


def text(data: bytes, *, is_last: bool = True) -> Chunk:
    return Chunk(TEXT, data, is_last=is_last)


@pytest.fixture
def runner() -> Runner:
    return Runner()
