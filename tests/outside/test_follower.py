"""What a collector makes of the messages of one process."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from tests.conftest import make_process

from dumpstream._native import SharedRing
from dumpstream.config import AclConfig, parse_config
from dumpstream.outside.connection import Connection
from dumpstream.outside.process import CapturedProcess, Follower
from dumpstream.outside.shares import Share, Shares
from dumpstream.outside.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dumpstream.outside.wire import Message

pytestmark = pytest.mark.anyio

_SIZE = 4 << 20


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ours, theirs
    theirs.close()


def follow(ours: socket.socket, config: bytes = b"{}") -> Follower:
    """Return a follower that hears what comes at the socket *ours*."""

    def hear(_: Connection, message: Message) -> None:
        follower.hear(message)

    connection = Connection(ours, hear, lambda _: None)
    share = Share(Shares(_SIZE, None), _SIZE, SharedRing(_SIZE), None)
    asked = parse_config(config)
    assert isinstance(asked, AclConfig)
    process = CapturedProcess(make_process(os.getpid()))
    follower = Follower(process, connection, share, environment={}, asked=asked)
    return follower


async def test_the_farewell_of_a_process_that_has_ended_is_heard_behind_many_messages(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    follower = follow(pair[0])
    for _ in range(150):
        pair[1].send(encode("wake"))
    pair[1].send(encode("bye"))

    follower.end()

    assert follower.source.cut_off is None
    follower.connection.close()


async def test_a_process_that_ended_without_a_farewell_was_cut_off(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    follower = follow(pair[0])
    pair[1].send(encode("wake"))

    follower.end()

    assert follower.source.cut_off == "process_gone"
    follower.connection.close()


async def test_only_the_first_message_that_a_process_drives_the_dump_counts(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    follower = follow(pair[0], b'{"dump": {"dump_debug": "on"}}')
    for call in ("aclmdlInitDump", *["aclmdlSetDump"] * 20):
        pair[1].send(encode("driven", [("call", call)]))

    follower.end()

    assert follower.process.record.problem is not None
    assert "(aclmdlInitDump)" in follower.process.record.problem
    follower.connection.close()
