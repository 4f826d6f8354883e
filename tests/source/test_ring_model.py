"""The ring and the callback's policy against a model that knows exactly what must happen."""

from __future__ import annotations

import ctypes
import random
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dumpstream import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

RING_BYTES = 64 << 10
NOTE_BYTES = 112 << 10
KEPT_NOTE_BYTES = 48 << 10  # for chunks that are cut off
MAX_ABANDONS = 10
MAX_RECORD = RING_BYTES // 8
MAX_FILE_BYTES = 1 << 40

PATTERN = random.Random(0).randbytes(3 * RING_BYTES + 1000)
BUFFER = ctypes.create_string_buffer(PATTERN, len(PATTERN))

names = st.sampled_from([b"a", b"dir/file", b"\xff\xfe", b"n" * 4095])
sizes = st.one_of(st.integers(0, 200), st.integers(0, 2 * MAX_RECORD), st.integers(0, 3 * RING_BYTES))
starts = st.integers(0, 999)
lasts = st.sampled_from([True, True, False])
chunks = st.tuples(names, starts, sizes, lasts, st.integers(-1, 1 << 39))


def push(name: bytes, start: int, size: int, *, last: bool, offset: int = -1) -> bool:
    """Push the pattern's bytes from *start*; return whether they were accepted."""
    return _native.push(name, ctypes.addressof(BUFFER) + start, size, last, offset, 0) == 0


def align(value: int) -> int:
    return -(-value // 16) * 16


def decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


@dataclass
class Lane:
    """Positions of a circular run of records."""

    size: int
    kept: int = 0
    head: int = 0
    tail: int = 0

    def claim(self, name: bytes, data_length: int, *, abandon: bool = False) -> int | None:
        """Return where the record ends, or None if there is no space."""
        need = align(align(48 + len(name)) + data_length)
        rest = self.size - self.head % self.size
        end = self.head + need + (rest if need > rest else 0)
        if end > self.tail + self.size - (0 if abandon else self.kept):
            return None
        self.head = end
        return end


class Record(NamedTuple):
    end: int
    name: str
    data: bytes
    offset: int
    more: bool
    last: bool
    sequence: int


class Note(NamedTuple):
    position: int  #: how much data is read before it
    end: int
    loss: tuple[str, str, int, bool]
    abandon: bool


@dataclass
class Run:
    """What one lease holds."""

    end: int
    lease: _native.Lease
    held: list[tuple[memoryview, bytes]]  #: views, and what they must show
    done: bool = False


@dataclass
class Model:
    """The ring as documented, for one thread."""

    full: str  #: the cause of a loss for want of space
    data: Lane = field(default_factory=lambda: Lane(RING_BYTES))
    notes: Lane = field(default_factory=lambda: Lane(NOTE_BYTES, KEPT_NOTE_BYTES))
    records: deque[Record] = field(default_factory=deque)
    losses: deque[Note] = field(default_factory=deque)
    refused: dict[bytes, int] = field(default_factory=dict)
    lost_chunks: Counter[str] = field(default_factory=Counter)
    lost_bytes: Counter[str] = field(default_factory=Counter)
    callbacks: int = 0
    read: int = 0
    unnamed: int = 0
    abandons: int = 0

    def push(self, name: bytes, start: int, size: int, *, last: bool, offset: int) -> bool:
        sequence = self.callbacks
        self.callbacks += 1
        if name in self.refused:
            self.count("after_loss", size)
            self.refused[name] += size
            if last:
                self.note("after_loss", name, self.refused.pop(name), ended=True)
            return False
        most = MAX_RECORD - 48 - len(name) - 16
        done = 0
        while True:
            part = min(size - done, most)
            end = self.data.claim(name, part)
            if end is None:
                self.lose(name, size - done, last=last, cut=done > 0)
                return False
            more = done + part < size
            at = offset if offset < 0 else offset + done
            data = PATTERN[start + done : start + done + part]
            self.records.append(Record(end, decode(name), data, at, more, last and not more, sequence))
            done += part
            if not more:
                return True

    def lose(self, name: bytes, size: int, *, last: bool, cut: bool) -> None:
        self.count(self.full, size)
        if not last:
            self.refused[name] = 0
        abandon = cut and self.abandons < MAX_ABANDONS
        self.abandons += abandon
        self.note(self.full, name, size, ended=last, abandon=abandon)

    def count(self, cause: str, size: int) -> None:
        self.lost_chunks[cause] += 1
        self.lost_bytes[cause] += size

    def note(self, cause: str, name: bytes, size: int, *, ended: bool, abandon: bool = False) -> None:
        end = self.notes.claim(name, 0, abandon=abandon)
        if end is None:
            self.unnamed += 1
        else:
            loss = (decode(name), cause, size, ended)
            self.losses.append(Note(self.data.head, end, loss, abandon))

    def lease(self, most: int, max_bytes: int) -> tuple[list[Record], list[tuple[str, str, int, bool]]]:
        losses = []
        while self.losses and self.losses[0].position <= self.read:
            note = self.losses.popleft()
            self.notes.tail = note.end
            self.abandons -= note.abandon
            losses.append(note.loss)
        until = self.losses[0].position if self.losses else self.data.head
        start, records = self.read, list[Record]()
        while self.records and len(records) < most and self.read < until and self.read - start < max_bytes:
            records.append(self.records.popleft())
            self.read = records[-1].end
        return records, losses


class RingMachine(RuleBasedStateMachine):
    """One thread pushes, leases, holds and releases in any order."""

    @initialize(block=st.booleans())
    def attach(self, block: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.ring = _native.Ring(RING_BYTES)
        # With a time limit of 0, blocking does the same as dropping.
        self.ring.attach(block, 0, MAX_FILE_BYTES)
        self.model = Model("timeout" if block else "ring_full")
        self.runs: list[Run] = []

    @rule(pushes=st.lists(chunks, min_size=1, max_size=12))
    def push(self, pushes: list[tuple[bytes, int, int, bool, int]]) -> None:
        for name, start, size, last, offset in pushes:
            accepted = push(name, start, size, last=last, offset=offset)

            assert accepted == self.model.push(name, start, size, last=last, offset=offset)

    @rule(most=st.integers(1, 50), max_bytes=st.integers(1, RING_BYTES), hold=st.booleans())
    def lease(self, most: int, max_bytes: int, hold: bool) -> None:  # noqa: FBT001
        leased = self.ring.lease(most, max_bytes)

        records, losses = self.model.lease(most, max_bytes)
        if leased is None:
            assert not records
            assert not losses
            return
        chunks, lost, lease, _ = leased
        assert lost == losses
        assert [
            (chunk.name, bytes(chunk), chunk.offset, chunk.more, chunk.is_last, chunk.sequence)
            for chunk in chunks
        ] == [record[1:] for record in records]
        if records:
            views = [chunk.data for chunk in chunks] if hold else []
            held = [(view, record.data) for view, record in zip(views, records, strict=False)]
            self.runs.append(Run(records[-1].end, lease, held))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from([run for run in self.runs if not run.done]))
        run.lease.release()
        if run.held:
            self.counters_agree()  # the views keep the space
        for view, expected in run.held:
            assert view == memoryview(expected)
            view.release()
        self.finish(run)

    @rule()
    def drain(self) -> None:
        while self.model.records:
            self.lease(4096, RING_BYTES, hold=False)
        for run in list(self.runs):
            run.lease.release()
            run.held.clear()
            self.finish(run)

    def finish(self, run: Run) -> None:
        run.done = True
        while self.runs and self.runs[0].done:
            self.model.data.tail = self.runs.pop(0).end

    @invariant()
    def counters_agree(self) -> None:
        size, fill, callbacks, _, unnamed, losses = self.ring.statistics()
        model = self.model
        assert fill == model.data.head - model.data.tail <= size == RING_BYTES
        assert (callbacks, unnamed) == (model.callbacks, model.unnamed)
        assert losses == {
            cause: (chunks, model.lost_bytes[cause]) for cause, chunks in model.lost_chunks.items()
        }

    def teardown(self) -> None:
        if not hasattr(self, "ring"):
            return
        assert self.ring.detach(0)
        for run in list(self.runs):
            self.finish(run)
        while self.model.records or self.model.losses:
            self.lease(4096, RING_BYTES, hold=False)
        assert sorted(self.ring.refused()) == sorted(
            (decode(name), size) for name, size in self.model.refused.items()
        )
        self.runs.clear()
        self.ring.close()


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


class Sent(NamedTuple):
    start: int
    size: int
    last: bool
    accepted: bool


Plan: TypeAlias = "list[tuple[int, int, bool]]"
plans = st.lists(st.tuples(starts, sizes, lasts), min_size=1, max_size=30)


def produce(name: bytes, plan: Plan, sent: list[Sent]) -> None:
    for start, size, last in plan:
        sent.append(Sent(start, size, last, push(name, start, size, last=last)))


def read_slowly(ring: _native.Ring, pace: random.Random) -> Iterator[_native.Chunk]:
    """Yield the records, in batches of any size, and release some batches late."""
    held: deque[_native.Lease] = deque()
    while (leased := ring.lease(pace.randint(1, 20), RING_BYTES // 8)) is not None:
        chunks, _, lease, _ = leased
        yield from chunks
        held.append(lease)
        while len(held) > pace.randint(0, 2):
            held.popleft().release()
    for lease in held:
        lease.release()


@dataclass
class Outcome:
    """What each producer sent, what came whole, and the pieces of chunks that were cut off."""

    sent: list[list[Sent]]
    whole: list[list[bytes]]
    cut: list[bytes]


def run_producers(ring: _native.Ring, plans: list[Plan], pace: random.Random) -> Outcome:
    """Run a thread per plan, and read until all have ended."""
    outcome = Outcome([[] for _ in plans], [[] for _ in plans], [])
    pieces: dict[int, list[bytes]] = {}
    threads = [
        threading.Thread(target=produce, args=(b"%d" % index, plan, outcome.sent[index]))
        for index, plan in enumerate(plans)
    ]
    for thread in threads:
        thread.start()
    running = True
    while running:
        running = any(thread.is_alive() for thread in threads)
        for chunk in read_slowly(ring, pace):
            pieces.setdefault(chunk.sequence, []).append(bytes(chunk))
            if not chunk.more:
                outcome.whole[int(chunk.name)].append(b"".join(pieces.pop(chunk.sequence)))
    outcome.cut = [piece for rest in pieces.values() for piece in rest]
    return outcome


@settings(max_examples=60, deadline=None)
@given(plans=st.lists(plans, min_size=1, max_size=4), block=st.booleans(), seed=st.integers(0, 1 << 32))
def test_threads_lose_nothing_that_is_not_counted(plans: list[Plan], block: bool, seed: int) -> None:  # noqa: FBT001
    ring = _native.Ring(RING_BYTES)
    ring.attach(block, 60_000_000_000, MAX_FILE_BYTES)

    try:
        outcome = run_producers(ring, plans, random.Random(seed))
    finally:
        assert ring.detach(0)

    _, fill, callbacks, _, _, losses = ring.statistics()
    refused = [chunk for chunks in outcome.sent for chunk in chunks if not chunk.accepted]
    lost_bytes = sum(size for _, size in losses.values())
    assert (fill, callbacks) == (0, sum(map(len, plans)))
    for chunks, whole in zip(outcome.sent, outcome.whole, strict=True):
        check_order(chunks, whole)
    assert sum(count for count, _ in losses.values()) == len(refused)
    assert lost_bytes + sum(map(len, outcome.cut)) == sum(chunk.size for chunk in refused)
    assert not (block and refused)
    ring.close()


def check_order(sent: list[Sent], whole: list[bytes]) -> None:
    """Check that what was accepted came, in order, and that a loss refused the rest of its file."""
    accepted = [chunk for chunk in sent if chunk.accepted]
    assert whole == [PATTERN[chunk.start : chunk.start + chunk.size] for chunk in accepted]
    for earlier, later in pairwise(sent):
        assert earlier.accepted or earlier.last or not later.accepted
