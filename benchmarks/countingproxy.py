"""CountingProxy: stands in front of a store on loopback, counts requests, and may delay them."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from anyio.from_thread import start_blocking_portal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_REQUEST = re.compile(rb"^(GET|HEAD|PUT|POST|DELETE) (/\S*) HTTP/1\.1\r\n", re.MULTILINE)
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class CountingProxy:
    """Passes bytes on to *target*, a port; every request waits *delay_s* before it goes on.

    Requests are counted by their method and the last component of what they ask for, lists as ``LIST``.
    """

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        self.port = 0
        self.delay_s = delay_s
        self.requests: Counter[tuple[str, str]] = Counter()
        self._target = target

    @property
    def total(self) -> int:
        """How many requests have come."""
        return sum(self.requests.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen while the block runs."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not Django's
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _serve(self, client: anyio.abc.SocketStream) -> None:
        with suppress(*_BROKEN):
            async with (
                client,
                await anyio.connect_tcp("127.0.0.1", self._target) as server,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(_pass_on, server, client)
                with suppress(*_BROKEN):
                    async for data in client:
                        if self._count(data) and self.delay_s:
                            await anyio.sleep(self.delay_s)
                        await server.send(data)
                tasks.cancel_scope.cancel()

    def _count(self, data: bytes) -> int:
        found = _REQUEST.findall(data)
        for method, target in found:
            path, _, query = target.decode().partition("?")
            listed = method == b"GET" and "list-type=" in query
            key = ("LIST", "") if listed else (method.decode(), path.rpartition("/")[2])
            self.requests[key] += 1
        return len(found)


async def _pass_on(server: anyio.abc.SocketStream, client: anyio.abc.SocketStream) -> None:
    with suppress(*_BROKEN):
        async for data in server:
            await client.send(data)


@contextmanager
def counting_proxy(target: int, delay_s: float = 0.0) -> Iterator[CountingProxy]:
    """Run a proxy in a thread of its own."""
    proxy = CountingProxy(target, delay_s)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(proxy.running()):
        yield proxy
