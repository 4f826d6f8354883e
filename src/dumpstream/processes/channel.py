"""Channel: messages between this process and one that it started, or that started it."""

import asyncio
import os
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
from anyio.to_thread import run_sync

_LENGTH = struct.Struct("=Q")
_MOST_DESCRIPTORS = 4
_MOST_BYTES = 1 << 20  #: that are read at once


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
        self._text = bytearray()  # of the message that is being received, with its length
        self._descriptors: list[int] = []

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
        """Return the next message; a call that is cancelled loses nothing, and the next one goes on.

        Raises:
            EOFError: the other side has gone.
        """
        while len(self._text) < _LENGTH.size:
            await self._read_head()
        (length,) = _LENGTH.unpack(self._text[: _LENGTH.size])
        while (missing := _LENGTH.size + length - len(self._text)) > 0:
            await anyio.wait_readable(self._end)
            self._text += self._came(lambda: self._end.recv(min(missing, _MOST_BYTES)))
        # In a thread: what an error is made of may have to be imported first.
        kind, value = await run_sync(pickle.loads, memoryview(self._text)[_LENGTH.size :].toreadonly())
        message = Message(kind, value, self._descriptors)
        self._text, self._descriptors = bytearray(), []
        return message

    def close(self) -> None:
        """Let the other side see the end, even if a forked child has this end, too."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

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

    async def _read_head(self) -> None:
        """Read what has come of the length of a message, and the descriptors that come with it."""
        await anyio.wait_readable(self._end)
        missing = _LENGTH.size - len(self._text)
        descriptors: list[int] = []

        def read() -> bytes:
            data, came, *_ = socket.recv_fds(self._end, missing, _MOST_DESCRIPTORS)
            descriptors.extend(came)
            return data

        self._text += self._came(read)
        self._descriptors += descriptors

    def _came(self, read: Callable[[], bytes]) -> bytes:
        """Return what *read* finds at the socket, which may be nothing yet."""
        try:
            data = read()
        except BlockingIOError:
            return b""
        except OSError as exc:
            raise EOFError from exc
        if not data:
            raise EOFError
        return data

    async def _send_all(self, text: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._end, text)
        except OSError as exc:
            raise EOFError from exc
