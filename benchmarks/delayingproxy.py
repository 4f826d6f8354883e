"""A proxy on loopback in front of a server: counts requests, and delays each, as a store that is far away."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")
_READ_BYTES = 1 << 18


class DelayingProxy:
    """Passes bytes on to *target*; what begins a request waits for *delay_s* seconds."""

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        self._target, self._delay_s = target, delay_s
        self.port = 0
        self.requests = 0

    @contextmanager
    def running(self) -> Iterator[DelayingProxy]:
        """Run it in a thread of its own."""
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            server.close()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            inner, outer = await asyncio.open_connection("127.0.0.1", self._target)
            back = asyncio.create_task(_pass_on(inner, writer))
            while data := await reader.read(_READ_BYTES):
                if data.startswith(_METHODS):
                    self.requests += 1
                    if self._delay_s:
                        await asyncio.sleep(self._delay_s)
                outer.write(data)
                await outer.drain()
            outer.close()
            await back
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.CancelledError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
