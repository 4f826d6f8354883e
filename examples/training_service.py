"""A training service that captures the next steps on request, while it trains.

It trains on the simulated runtime, so it runs anywhere; with CANN, call `aclInit` instead of entering
`SimulatedRuntime`, leave out `acl_library`, and train your model in `_run_step`. To try it:

    python examples/training_service.py /tmp/training.sock &
    echo 'status' | nc -NU /tmp/training.sock
    echo 'capture 3 /tmp/steps' | nc -NU /tmp/training.sock
    echo 'stop' | nc -NU /tmp/training.sock
    dumpstream ls /tmp/steps

A line is a command, and the answer is a line. The answer to `capture` comes when the steps are captured.
Training never stops for a capture: if one cannot begin, or fails, only the client that asked for it is told.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.to_thread import run_sync

from dumpstream import Capture, DumpstreamError, Report, open_capture
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

if TYPE_CHECKING:
    from anyio.abc import SocketStream

_STEP_S = 0.02
_LONGEST_LINE = 4096


@dataclass
class Request:
    """Steps that a client wants captured."""

    steps: int
    directory: Path
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: str = ""


class TrainingService:
    """Trains step by step, and captures the steps that clients ask for."""

    def __init__(self, runtime: SimulatedRuntime, config: Path) -> None:
        self._runtime = runtime
        self._config = config
        self._library = simulated_library()
        self._requests: deque[Request] = deque()
        self._capture: Capture | None = None
        self._steps = 0
        self._stopping = False

    async def train(self) -> None:
        """Train until told to stop."""
        while not self._stopping:
            if self._requests:
                await self._capture_steps(self._requests.popleft())
            else:
                await self._train_step()

    async def answer(self, stream: SocketStream) -> None:
        """Obey the lines of one connection."""
        lines = BufferedByteReceiveStream(stream)
        async with stream:
            while True:
                try:
                    line = await lines.receive_until(b"\n", _LONGEST_LINE)
                    answer = await self._obey(line.decode(errors="replace").split())
                    await stream.send(f"{answer}\n".encode(errors="replace"))
                except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
                    return
                except anyio.BrokenResourceError:  # the client no longer waits for the answer
                    return

    async def _train_step(self) -> None:
        await run_sync(self._run_step)
        self._steps += 1

    def _run_step(self) -> None:
        time.sleep(_STEP_S)  # what a real step takes
        self._runtime.run(1)

    async def _capture_steps(self, request: Request) -> None:
        last = self._steps + request.steps
        try:
            async with open_capture(
                request.directory, config=self._config, acl_library=self._library, buffer_bytes=32 << 20
            ) as self._capture:
                while self._steps < last and not self._stopping:
                    await self._train_step()
            request.answer = _summary(self._capture.report)
        except (DumpstreamError, ValueError) as exc:
            request.answer = f"failed: {exc}"
        finally:
            self._capture = None
            request.answered.set()

    async def _obey(self, words: list[str]) -> str:
        match words:
            case ["capture", steps, directory] if steps.isdecimal():
                request = Request(int(steps), Path(directory))
                self._requests.append(request)
                await request.answered.wait()
                return request.answer
            case ["status"]:
                doing = "idle" if self._capture is None else _summary(self._capture.report)
                return f"step {self._steps}, capture: {doing}"
            case ["stop"]:
                self._stopping = True
                return "stopping"
        return "say capture STEPS DIRECTORY, status or stop"


def _summary(report: Report) -> str:
    state = "whole" if report.whole else f"not whole: {report.verdicts}, lost {report.losses}"
    return f"{report.files} files, {report.bytes} bytes, {state}"


async def serve(service: TrainingService, socket: str) -> None:
    """Train until told to stop through *socket*."""
    async with await anyio.create_unix_listener(socket, mode=0o600) as listener:
        print(f"listening on {socket}", flush=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, service.answer)
            await service.train()
            tasks.cancel_scope.cancel()


def main(socket: str) -> None:
    """Begin what a training program needs, and serve."""
    with tempfile.TemporaryDirectory() as dump_path, SimulatedRuntime(Workload()) as runtime:
        config = Path(dump_path, "acl.json")
        config.write_text(dump_config(dump_path))
        anyio.run(serve, TrainingService(runtime, config), socket)


if __name__ == "__main__":
    main(sys.argv[1])
