"""FaultProxy: stands in front of a server, and misbehaves."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import anyio.abc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FaultProxy:
    """Passes bytes on to a port, until it is told to do worse.

    Attributes:
        cut_after: where connections are cut, counted in bytes to the server.
        cuts_left: how many are still to be cut.
        bytes_per_s: pass on no more than this to the server; None: as fast as they come.
        silent: take connections, and pass on nothing.
        asked: how many pieces of requests have come.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.cut_after = 0
        self.cuts_left = 0
        self.bytes_per_s: float | None = None
        self.silent = False
        self.asked = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def _serve(self, client: anyio.abc.SocketStream) -> None:
        broken = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
        with suppress(*broken):
            async with (
                client,
                await anyio.connect_tcp("127.0.0.1", self._target) as server,
                anyio.create_task_group() as tasks,
            ):

                async def back() -> None:
                    with suppress(*broken):
                        async for data in server:
                            await client.send(data)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(back)
                await self._forth(client, server)
                tasks.cancel_scope.cancel()

    async def _forth(self, client: anyio.abc.SocketStream, server: anyio.abc.SocketStream) -> None:
        passed = 0
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for data in client:
                self.asked += 1
                while self.silent:  # noqa: ASYNC110 - for tests, which set it
                    await anyio.sleep(0.01)
                if self.bytes_per_s is not None:
                    await anyio.sleep(len(data) / self.bytes_per_s)
                if self.cuts_left and passed + len(data) > self.cut_after:
                    self.cuts_left -= 1
                    await server.send(data[: self.cut_after - passed])
                    return
                passed += len(data)
                await server.send(data)
