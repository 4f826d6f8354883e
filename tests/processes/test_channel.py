"""Messages between two processes of the same program."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

import anyio
import pytest

from dumpstream.processes.channel import Channel

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_messages_of_any_size_come_whole_and_in_order() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    values = [b"", b"x" * 10, bytes(5 << 20), "text"]

    async def send() -> None:
        for value in values:
            await theirs.send("kind", value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        came = [(await ours.receive()).value for _ in values]

    assert came == values
    ours.close()
    theirs.close()


async def test_a_receive_that_is_cancelled_at_any_moment_loses_nothing() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    values = [bytes([number]) * (number * 50_000) for number in range(30)]

    async def send() -> None:
        for value in values:
            await theirs.send("kind", value)

    came: list[bytes] = []

    async def receive() -> None:
        came.append((await ours.receive()).value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        turns = 0
        while len(came) < len(values):
            turns += 1
            task = asyncio.create_task(receive())
            for _ in range(turns % 30):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    assert came == values
    ours.close()
    theirs.close()


async def test_descriptors_come_with_their_message() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    reader, writer = os.pipe()
    await theirs.send("with", None, [writer])
    await theirs.send("without")

    first, second = await ours.receive(), await ours.receive()

    (came,) = first.descriptors
    os.write(came, b"1")
    assert os.read(reader, 1) == b"1"
    assert not second.descriptors
    for descriptor in (came, reader, writer):
        os.close(descriptor)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("begun", [b"", b"\x05\0\0"])
async def test_the_end_of_the_other_side_is_told(begun: bytes) -> None:
    end, theirs = socket.socketpair()
    ours = Channel(end)
    theirs.sendall(begun)
    theirs.close()

    with pytest.raises(EOFError):
        await ours.receive()
    with pytest.raises(EOFError):
        await ours.send("kind")
    ours.close()
