"""Channel: messages between this process and one that it started, or that started it."""

import asyncio
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
from anyio.to_thread import run_sync

_LENGTH = struct.Struct("=Q")
_MOST_DESCRIPTORS = 4


class Message(NamedTuple):
    """What one side said: a *kind*, its value, and the descriptors that came with it."""

    kind: str
    value: Any
    descriptors: Sequence[int]  #: the receiver closes them


class Channel:
    """One end of a pair of sockets, between two processes of the same program, which trust each other."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._sending = anyio.Lock()

    async def send(self, kind: str, value: object = None, descriptors: Sequence[int] = ()) -> None:
        """Send a message; once begun, it is sent whole, even if the caller is cancelled.

        Raises:
            EOFError: the other side has gone.
        """
        text = pickle.dumps((kind, value))
        with anyio.CancelScope(shield=True):
            async with self._sending:
                await self._send_head(_LENGTH.pack(len(text)), descriptors)
                await self._send_all(text)

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: the other side has gone.
        """
        descriptors: list[int] = []
        try:
            head = await self._read_head(descriptors)
            text = await self._read(*_LENGTH.unpack(head))
            # In a thread: what an error is made of may have to be imported first.
            kind, value = await run_sync(pickle.loads, text)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return Message(kind, value, descriptors)

    def close(self) -> None:
        """Let the other side see the end, even if a forked child has this end, too."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    async def _send_head(self, head: bytes, descriptors: Sequence[int]) -> None:
        while True:
            try:
                socket.send_fds(self._end, [head], descriptors, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                await anyio.wait_writable(self._end)
            except OSError as exc:
                raise EOFError from exc
            else:
                return

    async def _read_head(self, descriptors: list[int]) -> bytes:
        """Return the length of the next message, and add the descriptors that come with it."""
        head = b""
        while len(head) < _LENGTH.size:
            await anyio.wait_readable(self._end)
            try:
                data, came, *_ = socket.recv_fds(self._end, _LENGTH.size - len(head), _MOST_DESCRIPTORS)
            except BlockingIOError:
                continue
            except OSError as exc:
                raise EOFError from exc
            if not data:
                raise EOFError
            head += data
            descriptors += came
        return head

    async def _send_all(self, text: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._end, text)
        except OSError as exc:
            raise EOFError from exc

    async def _read(self, length: int) -> bytes:
        loop, text = asyncio.get_running_loop(), bytearray()
        while len(text) < length:
            try:
                data = await loop.sock_recv(self._end, length - len(text))
            except OSError as exc:
                raise EOFError from exc
            if not data:
                raise EOFError
            text += data
        return bytes(text)
