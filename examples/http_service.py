"""A training service that answers HTTP requests about its capture while it trains.

It trains on the simulated runtime, so it runs anywhere; with CANN, call `aclInit` instead of entering
`SimulatedRuntime`, leave out `acl_library`, and train your model in `Service.train`. To try it:

    python examples/http_service.py /tmp/run &      # prints where it listens
    curl http://127.0.0.1:8080/progress             # the figures of the capture
    curl 'http://127.0.0.1:8080/progress?wait=1'    # the same, once something has happened, or after 5 s
    curl http://127.0.0.1:8080/nan                  # the latest tensor with a NaN
    kill %1                                         # ends the step, drains, and exits with 0

One task trains, one takes every file as it finishes and looks for NaNs in its statistics, and one answers
requests. The capture is the one place where all of them meet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from dumpstream import open_capture
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

if TYPE_CHECKING:
    from dumpstream import Capture, TensorRow

_STEP_S = 0.05
_REQUEST_S = 10.0
_WAIT_S = 5.0
_LONGEST_HEAD = 16 << 10


class Service:
    """What the service knows of its capture."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._steps = 0
        self._last_nan: dict[str, Any] | None = None
        self._stopping = asyncio.Event()
        self._limits: set[asyncio.Timeout] | None = set()  # of the requests; None: there are no more

    def stop(self) -> None:
        """End after the step that is being trained."""
        self._stopping.set()

    async def train(self, runtime: SimulatedRuntime) -> None:
        """Train until told to stop; each step in a worker thread, so that the event loop stays free."""
        while not self._stopping.is_set():
            await asyncio.to_thread(runtime.run, 1)
            self._steps += 1
            await asyncio.sleep(_STEP_S)  # what a real step takes

    async def look_for_nans(self) -> None:
        """Remember the latest tensor with a NaN; ends when the capture does."""
        async for file in self._capture.files(max_bytes=0):  # no bytes are needed, only the statistics
            for row in file.statistics or ():
                if row.nan:
                    self._last_nan = _describe(row)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close its connection."""
        try:
            async with self._limited():
                status, body = await self._respond(await reader.readuntil(b"\r\n\r\n"))
                writer.write(_response(status, body))
                await writer.drain()
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass  # a client that goes away, is slow or talks nonsense gets no answer
        finally:
            writer.close()

    def hang_up(self) -> None:
        """End all requests: a client that sends nothing must not keep the service."""
        limits, self._limits = self._limits, None
        for limit in limits or ():
            limit.reschedule(0)

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Raise `TimeoutError` if the block takes too long, or after `hang_up`."""
        async with asyncio.timeout(0 if self._limits is None else _REQUEST_S) as limit:
            if self._limits is not None:
                self._limits.add(limit)
            try:
                yield
            finally:
                if self._limits is not None:
                    self._limits.discard(limit)

    async def _respond(self, head: bytes) -> tuple[HTTPStatus, Any]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
            return HTTPStatus.BAD_REQUEST, {"error": "write a request of HTTP/1.1"}
        method, target, _ = words
        url = urlsplit(target)
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": "write GET"}
        match url.path:
            case "/progress":
                report = self._capture.report
                if "wait" in parse_qs(url.query):
                    with suppress(TimeoutError):
                        report = await asyncio.wait_for(self._capture.changed(report), _WAIT_S)
                return HTTPStatus.OK, {"step": self._steps, **report.as_dict()}
            case "/nan":
                return HTTPStatus.OK, {"nan": self._last_nan}
        return HTTPStatus.NOT_FOUND, {"error": "ask for /progress, /progress?wait=1 or /nan"}


def _describe(row: TensorRow) -> dict[str, Any]:
    names = ("file", "op_name", "iteration", "io", "index", "nan", "count")
    return {name: getattr(row, name) for name in names}


def _response(status: HTTPStatus, body: Any) -> bytes:
    text = json.dumps(body).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + text


def write_config(directory: str) -> Path:
    """Return an acl.json that dumps everything."""
    config = Path(directory, "acl.json")
    config.write_text(dump_config(directory))
    return config


async def serve(destination: Path, host: str, port: int) -> None:
    """Train and capture into *destination* until SIGTERM or SIGINT."""
    # A NaN at every third step, in operator 5.
    with tempfile.TemporaryDirectory() as dump_path, SimulatedRuntime(Workload(nan="5@3")) as runtime:
        config = write_config(dump_path)
        # The group outlives the capture: its consumer ends when the capture has ended.
        async with (
            asyncio.TaskGroup() as tasks,
            open_capture(
                destination,
                config=config,
                acl_library=simulated_library(),
                sinks=["zstd:", "stats:?format=csv"],
                buffer_bytes=32 << 20,
            ) as capture,
        ):
            service = Service(capture)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, service.stop)
            tasks.create_task(service.look_for_nans())
            async with await asyncio.start_server(service.answer, host, port, limit=_LONGEST_HEAD) as server:
                where = server.sockets[0].getsockname()
                print(f"listening on http://{where[0]}:{where[1]}", flush=True)
                await service.train(runtime)
                service.hang_up()
    report = capture.report
    print(f"{report.files} files, {report.verdicts}, whole: {report.whole}", flush=True)


def main() -> None:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(description="Train, capture, and answer requests about it.")
    parser.add_argument("destination", type=Path, help="the directory of the capture")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 for any")
    args = parser.parse_args()
    asyncio.run(serve(args.destination, args.host, args.port))


if __name__ == "__main__":
    main()
