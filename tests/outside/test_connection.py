from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import CollectorError
from dumpstream.outside.connection import LONGEST_SOCKET_PATH, Connection, is_allowed, listen
from dumpstream.outside.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dumpstream.outside.wire import Message

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "socket"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ours, theirs
    theirs.close()
    ours.close()


class Heard:
    """What a connection passes on."""

    def __init__(self, ours: socket.socket) -> None:
        self.messages: list[Message] = []
        self.closed = 0
        self.changed = anyio.Event()
        self.connection = Connection(ours, self._on_message, self._on_close)

    def _on_message(self, _: Connection, message: Message) -> None:
        self.messages.append(message)
        self.changed.set()

    def _on_close(self, _: Connection) -> None:
        self.closed += 1
        self.changed.set()

    async def change(self) -> None:
        with anyio.fail_after(10):
            await self.changed.wait()
        self.changed = anyio.Event()


def test_a_socket_is_for_its_user_alone(path: Path) -> None:
    with listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_socket_without_a_listener_is_replaced(path: Path) -> None:
    listen(path).close()

    with listen(path), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(str(path))


def test_the_socket_of_another_collector_is_left_alone(path: Path) -> None:
    with listen(path) as first:
        with pytest.raises(CollectorError, match="another collector listens"):
            listen(path)

        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(path))
            first.accept()[0].close()


def test_a_file_is_not_replaced_by_a_socket(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")

    with pytest.raises(CollectorError, match="is not a socket"):
        listen(tmp_path / "mine")

    assert (tmp_path / "mine").read_text() == "kept"


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match="more than 107 bytes"):
        listen(tmp_path / ("x" * LONGEST_SOCKET_PATH))
    with pytest.raises(CollectorError, match="no socket can be made"):
        listen(Path("/proc/dumpstream"))


@pytest.mark.parametrize(("offset", "allowed"), [(0, True), (1, False), (1000, False)])
def test_only_the_own_user_and_root_may_join(offset: int, allowed: bool) -> None:  # noqa: FBT001 - a fact
    assert is_allowed(os.geteuid() + offset) is allowed
    assert is_allowed(0)


async def test_the_kernel_says_who_a_peer_is(pair: tuple[socket.socket, socket.socket]) -> None:
    heard = Heard(pair[0])

    assert (heard.connection.pid, heard.connection.uid) == (os.getpid(), os.geteuid())
    heard.connection.close()


async def test_messages_come_in_order_and_the_end_comes_last(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    heard = Heard(pair[0])
    for number in range(200):  # more than are taken at a time
        pair[1].send(encode("wake", [("number", number)]))
    pair[1].close()

    while not heard.closed:
        await heard.change()

    assert [message.number("number") for message in heard.messages] == list(range(200))
    assert heard.closed == 1
    assert not heard.connection.open


async def test_of_long_packets_one_is_read_at_a_time(pair: tuple[socket.socket, socket.socket]) -> None:
    heard = Heard(pair[0])
    for _ in range(3):
        pair[1].send(encode("config", [("text", "x" * 50_000)]))

    reads = []
    while len(heard.messages) < 3:
        reads.append((heard.connection.read(), len(heard.messages)))

    assert reads == [(True, 1), (True, 2), (True, 3)]
    heard.connection.close()


@pytest.mark.parametrize("packet", [b"garbage", b"\xff" * 1000, bytes(65536), b"hello\0" + b"a" * 65536])
async def test_garbage_ends_the_connection(packet: bytes, pair: tuple[socket.socket, socket.socket]) -> None:
    heard = Heard(pair[0])

    pair[1].send(packet)
    await heard.change()

    assert (heard.messages, heard.closed) == ([], 1)
    assert pair[1].recv(1) == b""


async def test_descriptors_that_a_peer_sends_are_not_taken(pair: tuple[socket.socket, socket.socket]) -> None:
    heard = Heard(pair[0])
    before = await run_sync(os.listdir, "/proc/self/fd")

    socket.send_fds(pair[1], [encode("wake")], [0, 1, 2])
    await heard.change()

    assert len(heard.messages) == 1
    assert len(await run_sync(os.listdir, "/proc/self/fd")) == len(before)
    heard.connection.close()


async def test_a_peer_that_is_gone_takes_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    heard = Heard(pair[0])
    pair[1].close()

    assert not heard.connection.send(encode("end"))
    heard.connection.close()
    assert not heard.connection.send(encode("end"))


async def test_a_peer_that_reads_nothing_does_not_delay_others(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    heard = Heard(pair[0])

    sent = [heard.connection.send(encode("end", [("text", "x" * 10000)])) for _ in range(1000)]

    assert sent[0]
    assert not sent[-1]
    heard.connection.close()
