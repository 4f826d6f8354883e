"""Programs to capture, and a collector that does no more than the protocol asks for."""

from __future__ import annotations

import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream import _native
from dumpstream.simulation import dump_config
from dumpstream.simulation.library import simulated_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TESTS = Path(__file__).parents[2]
_NATIVE = _TESTS.parent / "src" / "dumpstream" / "native"
_AGENT = Path(_native.__file__).parent / "libdumpstream_agent.so"


@dataclass
class Targets:
    """Where the programs are."""

    linked: Path
    opened: Path
    host: Path
    extension: Path
    looked_up: Path
    front: Path
    next: Path
    waits: Path
    library: Path = field(default_factory=simulated_library)
    called: Path = _TESTS / "targets" / "called.py"


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Targets:
    """Build the programs, each of which reaches ACL in another way."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    out, library = tmp_path_factory.mktemp("targets"), simulated_library()
    link = [str(library), f"-Wl,-rpath,{library.parent}"]

    def build(name: str, sources: Sequence[str], *options: str) -> Path:
        paths = [str(_TESTS / "targets" / source) for source in sources]
        include = [f"-I{_NATIVE / 'include'}", f"-I{_NATIVE / 'sim'}"]
        flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, *flags, *include, "-o", str(out / name), *paths, *options], check=True)
        return out / name

    shared = ["-shared", "-fPIC"]
    return Targets(
        linked=build("linked", ["linked.c", "job.c"], "-DPROGRAM", *link),
        opened=build("opened", ["opened.c", "job.c"]),
        host=build("host", ["host.c"]),
        extension=build("extension.so", ["linked.c", "job.c"], *shared, *link),
        looked_up=build("looked_up.so", ["linked.c", "job.c"], "-DLOOKED_UP", *shared, *link),
        front=build("front.so", ["front.c"], *shared, f'-DBEHIND="{library}"', *link, "-Wl,--no-as-needed"),
        next=build("next.so", ["next.c"], *shared),
        waits=build("waits.so", ["waits.c"], *shared),
    )


@dataclass
class Peer:
    """One process that joined, and what came from it."""

    connection: socket.socket
    pid: int
    pidfd: int
    hello: dict[str, list[str]]
    ring: _native.SharedRing | None = None
    messages: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    files: dict[str, bytearray] = field(default_factory=dict)
    losses: list[tuple[str, str, int, bool]] = field(default_factory=list)
    wakes: int = 0
    died: bool = False
    hung_up: bool = False

    def calls(self) -> list[str]:
        """Return the ACL calls that succeeded, in their order."""
        return [fields["call"] for kind, fields in self.messages if kind == "acl" and fields["code"] == "0"]

    def of(self, kind: str) -> list[dict[str, str]]:
        return [fields for found, fields in self.messages if found == kind]

    def statistics(self) -> tuple[int, int, int, int, int, dict[str, tuple[int, int]]]:
        assert self.ring is not None
        return self.ring.statistics()

    def drain(self) -> None:
        """Take what is in the ring."""
        while self.ring is not None and (leased := self.ring.lease(1000, 1 << 20)) is not None:
            chunks, losses, lease, _ = leased
            for chunk in chunks:
                self.files.setdefault(chunk.name, bytearray()).extend(chunk.data)
            self.losses += losses
            lease.release()

    def whole_files(self) -> int:
        """Return how many files are as long as their headers say."""
        whole = 0
        for data in self.files.values():
            state, total, present = _native.read_header(data)
            whole += state == 0 and len(data) in (total, present)
        return whole


def _fields(message: bytes) -> tuple[str, list[tuple[str, str]]]:
    assert message.endswith(b"\0")
    kind, *fields = message[:-1].decode().split("\0")
    pairs = [field.partition("=") for field in fields]
    return kind, [(key, value) for key, _, value in pairs]


class Collector:
    """Serves processes one loop step at a time, in the thread of the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "socket"
        self.peers: list[Peer] = []
        self.size = 1 << 20
        self.block_ns = 20_000_000_000
        self.block = True
        self.config: Path | None = None
        self.refusal: str | None = None
        self.answer: tuple[bytes, list[int]] | None = None  #: to send, with descriptors, whatever is asked
        self.in_file = False
        self.reading = True
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._listener.setblocking(False)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process join."""
        return os.environ | {"LD_PRELOAD": str(_AGENT), "DUMPSTREAM_SOCKET": str(self.path)}

    def start(self, *command: str | Path, **more: str) -> subprocess.Popen[str]:
        with (self.directory / "out").open("w") as out, (self.directory / "err").open("w") as err:
            return subprocess.Popen(
                [str(word) for word in command],
                env=self.environment | more,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                text=True,
            )

    def run(self, *command: str | Path, **more: str) -> int:
        """Run *command* to its end, serve all who join, and return its exit code."""
        process = self.start(*command, **more)
        self.serve(process)
        return process.returncode

    def serve(self, process: subprocess.Popen[str]) -> None:
        """Go on until the process and all who joined have ended."""
        self.until(lambda: process.poll() is not None and all(peer.died for peer in self.peers))
        assert process.stdin is not None
        process.stdin.close()

    def until(self, condition: Callable[[], bool]) -> None:
        """Serve until *condition* is true."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, self.stderr
            self._step()
        self._step()

    @property
    def stdout(self) -> list[str]:
        return (self.directory / "out").read_text().splitlines()

    @property
    def stderr(self) -> str:
        return (self.directory / "err").read_text()

    @property
    def peer(self) -> Peer:
        """The only process that joined."""
        (peer,) = self.peers
        return peer

    def close(self) -> None:
        """Be gone, as a collector that was killed is."""
        self._listener.close()
        for peer in self.peers:
            peer.connection.close()
            if peer.pidfd >= 0:
                os.close(peer.pidfd)
                peer.pidfd = -1

    def _step(self) -> None:
        """Serve what is there, and wait for a few milliseconds if there is nothing."""
        self._accept()
        for peer in self.peers:
            if self.reading:
                self._read(peer)
        watched = [peer.connection for peer in self.peers if not peer.hung_up]
        select.select([self._listener, *watched], [], [], 0.005)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        assert uid == os.getuid()
        kind, pairs = _fields(connection.recv(1 << 16))
        assert kind == "hello"
        hello: dict[str, list[str]] = {}
        for key, value in pairs:
            hello.setdefault(key, []).append(value)
        peer = Peer(connection, pid, os.pidfd_open(pid), hello)
        connection.setblocking(False)
        self.peers.append(peer)
        self._answer(peer)

    def _answer(self, peer: Peer) -> None:
        if self.refusal is not None:
            peer.connection.send(f"refused\0reason={self.refusal}\0".encode())
            return
        if self.answer is not None:
            socket.send_fds(peer.connection, [self.answer[0]], self.answer[1])
            return
        path = str(self.directory / f"ring-{len(self.peers)}") if self.in_file else None
        peer.ring = _native.SharedRing(self.size, path=path)
        fields = [f"size={self.size}", f"block={self.block:d}", f"block_ns={self.block_ns}"]
        fields += ["max_file_bytes=1000000000"]
        if self.config is not None:
            fields.append(f"config={self.config}")
        socket.send_fds(peer.connection, ["\0".join(["ring", *fields, ""]).encode()], [peer.ring.fileno()])

    def _read(self, peer: Peer) -> None:
        dead = bool(select.select([peer.pidfd], [], [], 0)[0])
        self._read_messages(peer)
        peer.drain()
        if dead and not peer.died:
            if peer.ring is not None:
                peer.ring.producer_died()
            peer.drain()
            peer.died = True
        elif peer.ring is not None:
            peer.ring.arm(0)

    def _read_messages(self, peer: Peer) -> None:
        while not peer.hung_up:
            try:
                message = peer.connection.recv(1 << 16)
            except (BlockingIOError, ConnectionResetError):
                return
            if not message:
                peer.hung_up = True
            elif message == b"wake\0":
                peer.wakes += 1
            else:
                kind, pairs = _fields(message)
                peer.messages.append((kind, dict(pairs)))


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    collector = Collector(tmp_path)
    yield collector
    collector.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A dump configuration."""
    path = tmp_path / "acl.json"
    path.write_text(dump_config(tmp_path))
    return path


@pytest.fixture
def agent() -> Path:
    """The library to preload."""
    return _AGENT


@pytest.fixture
def python() -> str:
    return sys.executable
