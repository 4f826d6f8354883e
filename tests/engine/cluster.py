"""A dask cluster of processes of its own, and a relay that holds, counts and refuses requests to a store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from tests.conftest import LIMIT_S
from tests.remote.servers.relay import Answer, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.remote.servers.relay import Request

_DASK = str(Path(sys.executable).with_name("dask"))
_REFUSAL = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Gate(Relay):
    """Passes requests on; those whose path contains *holds* wait until `release`."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.holds: str | None = None
        self.refuses: str | None = None  #: requests whose path contains it are refused
        self.held = Event()  #: one is waiting
        self._open = Event()
        self._lock = Lock()
        self.requests = 0

    def release(self) -> None:
        """Let all that wait go on, and hold no more."""
        self.holds = None
        self._open.set()

    def on_request(self, request: Request) -> Answer | None:
        with self._lock:
            self.requests += 1
        if self.refuses is not None and self.refuses in request.path:
            return Answer(403, _REFUSAL, {"Content-Type": "application/xml"})
        if self.holds is not None and self.holds in request.path:
            self.held.set()
            self._open.wait(LIMIT_S)
        return None


class Cluster:
    """A scheduler, and workers of one thread each."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = {**os.environ, **environment}
        self._file = directory / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """Where the scheduler listens."""
        address: str = json.loads(self._file.read_text())["address"]
        return address

    def start(self, workers: int) -> None:
        """Start the scheduler, and so many workers."""
        scheduler = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self._run(*scheduler, "--scheduler-file", str(self._file))
        until(self._file.exists)
        for _ in range(workers):
            self.add_worker()

    def add_worker(self, environment: Mapping[str, str] | None = None) -> None:
        """Start a worker, and wait until the scheduler knows it."""
        before = len(self._known())
        arguments = ["worker", "--scheduler-file", str(self._file), "--nthreads", "1", "--no-nanny"]
        process = self._run(*arguments, "--no-dashboard", "--host", "127.0.0.1", environment=environment)
        self.workers.append(process)
        until(lambda: len(self._known()) > before)

    def tasks(self) -> int:
        """Return how many tasks the scheduler has."""
        with self._client() as client:
            return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    def _known(self) -> list[str]:
        with self._client() as client:
            return [*client.nthreads()]

    def _client(self) -> Any:
        return import_module("distributed").Client(self.address, set_as_default=False)

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        log = (self._directory / f"dask-{len(self._processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [_DASK, *arguments],
                env={**self._environment, **(environment or {})},
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        self._processes.append(process)
        return process


@contextmanager
def running_cluster(directory: Path, environment: Mapping[str, str], workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster whose processes have *environment* beside that of the test."""
    directory.mkdir()
    cluster = Cluster(directory, environment)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()


class Command:
    """A command that runs beside the test, without a line of progress if it takes long."""

    def __init__(
        self, command: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dumpstream", command, "--progress", "none", *map(str, arguments)],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def interrupt(self) -> None:
        """Do as Ctrl-C does in a terminal, which the command and what it has started get."""
        os.killpg(self._process.pid, signal.SIGINT)

    def left(self) -> list[Path]:
        """Return the processes that it has started and that live."""
        processes = [Path("/proc", name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - ends
        stats = {it: _read(it / "stat").rpartition(") ")[2].split() for it in processes}
        group = str(self._process.pid)
        return [it for it, (state, _, of, *_) in stats.items() if of == group and state != "Z"]

    def ended(self, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[bytes]:
        """Return how it has ended, once it has."""
        try:
            out, err = self._process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        return subprocess.CompletedProcess(self._process.args, self._process.returncode, out, err)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ") Z 0 0"


def finished(
    command: str, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    return Command(command, *arguments, environment=environment).ended()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
