"""The collector's side of a ring, which the tests fill by its layout."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from typing import TYPE_CHECKING

import pytest

from dumpstream import _native

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[[], tuple[_native.SharedRing, "Producer"]]

SIZE = 1 << 16
LAST, MORE = 2, 4
#: Where things are: the control page, then the note lane, then the data lane.
_NONCE, _DATA_HEAD, _NOTE_HEAD, _WAKE_AT, _STATE, _CALLBACKS = 32, 64, 192, 320, 392, 448
_NOTES, _DATA = 4096, 4096 + (112 << 10)


class Producer:
    """Another process's hold on the ring, as far as a test needs it."""

    def __init__(self, fd: int) -> None:
        self.memory = mmap.mmap(fd, _DATA + SIZE)
        self.nonce = self.word(_NONCE)

    def word(self, at: int) -> int:
        value: int = struct.unpack_from("<Q", self.memory, at)[0]
        return value

    def store(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self.memory, at, value)

    def claim(self, head_at: int, length: int) -> int:
        position = self.word(head_at)
        self.store(head_at, position + length)
        return position

    def push(self, name: bytes, data: bytes = b"", *, flags: int = 0, sequence: int = 0) -> None:
        """Publish one chunk."""
        self._publish((_DATA_HEAD, _DATA), name, data, (flags, sequence, -1, 0))

    def note(self, name: bytes, cause: str, size: int) -> None:
        """Publish one loss, at this place among the chunks."""
        fields = (0, self.word(_DATA_HEAD), size, _native.CAUSES.index(cause))
        self._publish((_NOTE_HEAD, _NOTES), name, b"", fields)

    def _publish(
        self, lane: tuple[int, int], name: bytes, data: bytes, fields: tuple[int, int, int, int]
    ) -> None:
        head, base = lane
        flags, sequence, offset, flag = fields
        start = -(-(48 + len(name)) // 16) * 16
        length = start + -(-len(data) // 16) * 16
        position = self.claim(head, length)
        numbers = (length, flags, sequence, offset, len(name), len(data), flag, 0)
        body = struct.pack("<IIQqIIiI", *numbers) + name
        at = base + position
        self.memory[at + 8 : at + 8 + len(body)] = body
        self.memory[at + start : at + start + len(data)] = data
        self.store(at, (position ^ self.nonce) | 1)


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def make() -> tuple[_native.SharedRing, Producer]:
        ring = _native.SharedRing(SIZE, path=str(tmp_path / "ring") if request.param == "file" else None)
        return ring, Producer(ring.fileno())

    return make


def take(ring: _native.SharedRing) -> tuple[list[bytes], list[tuple[str, str, int, bool]]]:
    """Lease the records and give them back."""
    leased = ring.lease(1000, SIZE)
    if leased is None:
        return [], []
    chunks, losses, lease, _ = leased
    data = [bytes(chunk) for chunk in chunks]
    lease.release()
    return data, losses


def test_chunks_come_as_they_were_pushed(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"one", flags=MORE, sequence=7)
    producer.push(b"\xff", b"", flags=LAST, sequence=8)

    leased = ring.lease(10, SIZE)

    assert leased is not None
    first, second = leased[0]
    assert (first.name, bytes(first), first.more, first.is_last, first.sequence) == (
        "a",
        b"one",
        True,
        False,
        7,
    )
    assert (second.name, bytes(second), second.more, second.is_last) == ("\udcff", b"", False, True)
    assert leased[1] == []
    assert ring.lease(10, SIZE) is None


def test_bytes_are_private_copies(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"kept")
    leased = ring.lease(10, SIZE)

    producer.memory[_DATA : _DATA + SIZE] = b"\xff" * SIZE

    assert leased is not None
    assert bytes(leased[0][0]) == b"kept"


def test_space_is_free_on_release_whatever_views_there_are(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"kept")
    leased = ring.lease(10, SIZE)
    assert leased is not None
    chunk, lease = leased[0][0], leased[2]
    view = chunk.data
    assert ring.statistics()[1] == lease.size == 80

    lease.release()

    assert ring.statistics()[1] == 0
    assert bytes(view) == b"kept"
    with pytest.raises(ValueError, match="released"):
        _ = chunk.data


def test_views_outlive_the_ring(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"kept")
    leased = ring.lease(10, SIZE)
    assert leased is not None
    view = leased[0][0].data

    ring.close()
    leased[2].release()

    assert bytes(view) == b"kept"


def test_losses_come_between_the_right_chunks(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"before")
    producer.note(b"lost", "ring_full", 5)
    producer.push(b"a", b"behind")

    taken = [take(ring), take(ring), take(ring)]

    assert taken == [([b"before"], []), ([b"behind"], [("lost", "ring_full", 5, False)]), ([], [])]


def test_unfinished_record_is_a_loss_once_its_producer_is_dead(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"before")
    producer.claim(_DATA_HEAD, 160)
    producer.push(b"a", b"behind")
    producer.store(_CALLBACKS, 4)
    assert [take(ring), take(ring)] == [([b"before"], []), ([], [])]

    ring.producer_died()

    assert take(ring) == ([b"behind"], [("", "unfinished", 160, False)])
    assert take(ring) == ([], [])
    assert ring.statistics()[5] == {"unfinished": (2, 160)}


def test_damage_is_an_error_behind_what_is_good(make: Make) -> None:
    ring, producer = make()
    producer.push(b"a", b"good")
    producer.push(b"a", b"bad")
    producer.memory[_DATA + 80 + 8] ^= 1

    assert take(ring) == ([b"good"], [])

    with pytest.raises(OSError, match=os.strerror(errno.EBADMSG)) as raised:
        ring.lease(10, SIZE)
    assert raised.value.errno == errno.EBADMSG


def test_wake_up_is_asked_for_unless_there_is_something(make: Make) -> None:
    ring, producer = make()

    assert not ring.arm(100)
    assert producer.word(_WAKE_AT) == 100
    ring.disarm()
    assert producer.word(_WAKE_AT) == (1 << 64) - 1
    producer.push(b"a")
    assert ring.arm(0)
    assert producer.word(_WAKE_AT) == (1 << 64) - 1


def test_discard_is_seen_by_the_producer(make: Make) -> None:
    ring, producer = make()

    ring.discard()

    assert producer.memory[_STATE] == 1


def test_closed_ring_cannot_be_used(make: Make) -> None:
    ring, _ = make()
    ring.close()
    ring.close()

    for call in (ring.fileno, ring.disarm, ring.discard, ring.producer_died, ring.statistics):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="closed"):
        ring.lease(1, 1)


def test_forked_child_cannot_use_its_parents_ring(make: Make) -> None:
    ring, _ = make()
    child = os.fork()
    if child == 0:
        try:
            ring.lease(1, 1)
        except ValueError:
            os._exit(0)
        os._exit(1)

    assert os.waitpid(child, 0)[1] == 0


def test_memory_is_sealed() -> None:
    ring = _native.SharedRing(SIZE)

    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(ring.fileno(), size)


def test_recovered_ring_goes_on_where_the_dead_collector_stopped(tmp_path: Path) -> None:
    path = str(tmp_path / "ring")
    ring = _native.SharedRing(SIZE, path=path)
    producer = Producer(ring.fileno())
    producer.push(b"a", b"stored")
    take(ring)
    producer.push(b"a", b"leased")
    held = ring.lease(10, SIZE)
    producer.push(b"a", b"unread")

    recovered = _native.SharedRing.recover(path)

    assert held is not None
    assert take(recovered) == ([b"leased", b"unread"], [])


def test_only_a_ring_is_recovered(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * (_DATA + SIZE))

    with pytest.raises(OSError, match=os.strerror(errno.EBADMSG)):
        _native.SharedRing.recover(str(other))
    with pytest.raises(FileNotFoundError):
        _native.SharedRing.recover(str(tmp_path / "none"))


def test_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("precious")

    with pytest.raises(FileExistsError):
        _native.SharedRing(SIZE, path=str(tmp_path / "ring"))
    assert (tmp_path / "ring").read_text() == "precious"


def test_truncated_file_is_an_empty_ring(tmp_path: Path) -> None:
    ring = _native.SharedRing(SIZE, path=str(tmp_path / "ring"))
    Producer(ring.fileno()).push(b"a", b"gone")

    os.truncate(tmp_path / "ring", 0)

    ring.producer_died()
    assert take(ring) == ([], [])
    assert not ring.arm(0)
