from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
import zstandard
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

import dumpstream
from dumpstream.archive.destination import Destination, join_job
from dumpstream.archive.manifest import Configured, Process
from dumpstream.archive.rows import JOURNAL, BeginRow, EndRow, FileRow, Outcome, StoredPart, timestamp
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import dump_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

#: How long a test waits for what must come. Only what never comes takes so long, however busy the machine is.
LIMIT_S = 120

# Examples take as long as the machine is busy.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")

_FLOAT, _UINT8, _INT32 = 1, 4, 7
_DTYPES = {"float32": _FLOAT, "uint8": _UINT8, "int32": _INT32}
_DTYPES |= {"float16": 2, "int8": 3, "int64": 8, "uint64": 10, "bool": 11, "float64": 12, "complex64": 16}
_ND = 2

_NO_UVLOOP = pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")
_ASYNCIO = ("asyncio", {"use_uvloop": False})
_LOOPS = [
    pytest.param(_ASYNCIO, id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop", marks=_NO_UVLOOP),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked `both_loops` on asyncio's own loop and on uvloop.

    The loop matters to code that waits for descriptors, processes or threads, that sets timers, or that is
    cancelled in the middle of its work. All other code sees only what asyncio promises of either loop.
    """
    if "anyio_backend" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_loops"):
        metafunc.parametrize("anyio_backend", _LOOPS, indirect=True)


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    backend: tuple[str, dict[str, Any]] = getattr(request, "param", _ASYNCIO)
    return backend


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give every worker a temporary directory and a cache.

    Processes that profile exclude each other by a file in the temporary directory.
    """
    directory = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", directory)
        patch.setenv("TMPDIR", directory)
        patch.setenv("XDG_CACHE_HOME", f"{directory}/cache")
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_signal_is_ignored() -> None:
    """Heed what shells and nohup let a job in the background ignore: programs of the tests inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


@pytest.fixture(autouse=True)
def _nothing_blocks_the_loop() -> Iterator[None]:
    """Make a blocking call on the event loop fail if dumpstream's code is what makes it."""
    # An editable install has the native part in a directory of its own, and only the first is looked at.
    scanned = ModuleType("dumpstream")
    scanned.__path__ = [str(Path(dumpstream.__file__).parent)]
    with blockbuster_ctx(scanned) as guard:
        # /proc and /sys answer from memory.
        guard.functions["io.TextIOWrapper.read"].can_block_in(
            "dumpstream/system/memory.py", "available_memory"
        )
        # At the end of a loop, a thread that has said that it ends is joined.
        guard.functions["threading.Lock.acquire"].can_block_in("asyncio/runners.py", "close")
        yield


class CaptureBuilder:
    """Leaves a capture as the pipeline does, step by step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._destination = Destination.open(path)
        self._run = self._destination.begin_run({"level": 1})
        self.write(BeginRow(self._run, timestamp()).to_line())

    def write(self, line: str, end: str = "\n") -> None:
        """Append *line* to the journal."""
        with (self.path / JOURNAL).open("a", encoding="ascii") as file:
            file.write(line + end)

    def store(self, path: str, data: bytes, *, offset: int = 0) -> StoredPart:
        """Write *data* to *path* as the zstd sink does, and return its entry."""
        compressed = zstandard.ZstdCompressor().compress(data)
        target = self.path / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.write_bytes(compressed)
        digest = xxhash.xxh3_64_hexdigest(data)
        return StoredPart("zstd", path, offset, len(data), len(compressed), digest)

    def add(self, name: str, data: bytes, verdict: Verdict = Verdict.UNPARSED, **more: Any) -> StoredPart:
        """Store a file in one part and write its row."""
        part = self.store(f"files/{name.strip('/')}.zst", data)
        self.write(FileRow(name, len(data), 1, verdict, [part], **more).to_line())
        return part

    def add_gapped(self, name: str, before: bytes, behind: bytes, offset: int) -> None:
        """Store a file that misses what is between *before* and *offset*."""
        parts = [self.store(f"files/{name}.zst", before)]
        parts.append(self.store(f"files/{name}.2.zst", behind, offset=offset))
        size, gap = len(before) + len(behind), (len(before), offset)
        self.write(FileRow(name, size, 2, Verdict.GAP, parts, missing=[gap]).to_line())

    def configure(self, *configs: dict[str, Any] | None, by: str = "program") -> None:
        """Write down what a process put in force, one after another."""
        now = timestamp()
        self._destination.configure_run(
            [
                Configured(by=by, call="aclmdlSetDump", path="acl.json", first=now, last=now, config=config)
                for config in configs
            ]
        )

    def finish(self, outcome: Outcome = Outcome.FINISHED) -> Path:
        """End the run and return the capture."""
        self.write(EndRow(self._run, timestamp(), outcome, {}).to_line())
        self._destination.end_run(outcome)
        return self.interrupt()

    def interrupt(self) -> Path:
        """Leave it as a killed process does."""
        self._destination.close()
        return self.path


def make_process(pid: int, *, command: Sequence[str] = ("job",), **more: Any) -> Process:
    """Return a process as it is known when it joins a collector."""
    return Process(directory="", pid=pid, parent=1, command=list(command), started=timestamp(), **more)


class CollectionBuilder:
    """Leaves a capture of several processes as the collector does, step by step; with *host*, in a job."""

    def __init__(self, path: Path, host: str | None = None) -> None:
        if host is not None:
            join_job(path, host)
        self.path = path if host is None else path / host
        self._destination = Destination.open(self.path, of_processes=True)
        self._destination.manifest.host = host
        self._destination.begin_processes()
        self._processes: dict[Path, Process] = {}

    def begin(self, *, rank: int | None, pid: int = 1, **more: Any) -> CaptureBuilder:
        """Begin the capture of a process."""
        command = ["/usr/bin/train", "jobs/fast", "--slow"]
        process = make_process(pid, command=command, rank=rank, device=rank, **more)
        self._destination.begin_process(process)
        capture = CaptureBuilder(self.path / process.directory)
        self._processes[capture.path] = process
        return capture

    def refuse(self, *, pid: int) -> None:
        """Write down a process that was not captured."""
        process = make_process(pid, command=["train"], problem="no room is left")
        self._destination.begin_process(process, refused=True)

    def end(self, capture: CaptureBuilder, ending: str = "exit code 0") -> None:
        """End the capture of a process, and the process."""
        self._destination.end_process(self._processes[capture.finish()], ending)

    def close(self) -> Path:
        """Leave the capture as a collector that is killed does."""
        self._destination.close()
        return self.path

    def finish(self) -> Path:
        """Leave the capture as a collector that ends does."""
        self._destination.end_processes()
        return self.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A dump configuration that CANN accepts, and whose names a workload can forecast."""
    (tmp_path / "dump").mkdir()
    path = tmp_path / "acl.json"
    path.write_text(dump_config(tmp_path / "dump"))
    return path


@pytest.fixture
def collection(tmp_path: Path) -> CollectionBuilder:
    return CollectionBuilder(tmp_path / "run")


@pytest.fixture
def builder(tmp_path: Path) -> CaptureBuilder:
    return CaptureBuilder(tmp_path / "capture")


def varint(value: int) -> bytes:
    """Return *value* as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    """Return a field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class DumpBuilder:
    """Puts a dump file together, byte by byte."""

    def __init__(self, op_name: str = "conv1") -> None:
        self._message = field(1, "2.0") + field(2, 1780159660546556) + field(6, op_name)
        self._inputs, self._outputs, self._spaces = bytearray(), bytearray(), bytearray()

    def input(self, array: NDArray[Any], *, form: int = _ND, address: int = 1, **more: int) -> DumpBuilder:
        """Add an input; *more* are its arg_index and input_type."""
        numbers = {"arg_index": 10, "input_type": 11}
        self._inputs += array.tobytes() if address else b""
        known = _described(array, form) + field(5, array.nbytes) + field(8, address)
        return self._add(4, known + _fields(numbers, more))

    def output(self, array: NDArray[Any], *, form: int = _ND, address: int = 1, **more: int) -> DumpBuilder:
        """Add an output; without an address its bytes are missing. *more* is its arg_index."""
        self._outputs += array.tobytes() if address else b""
        known = _described(array, form) + field(6, array.nbytes) + field(9, address)
        return self._add(3, known + _fields({"arg_index": 12}, more))

    def space(self, data: bytes, **more: int) -> DumpBuilder:
        """Add a workspace; *more* is its arg_index."""
        self._spaces += data
        return self._add(8, field(1, 0) + field(3, len(data)) + _fields({"arg_index": 4}, more))

    def attribute(self, name: str, value: str) -> DumpBuilder:
        return self._add(7, field(1, name) + field(2, value))

    def message(self, text: str) -> DumpBuilder:
        """Add the text of an exception dump."""
        return self._add(9, text.encode())

    def build(self) -> bytes:
        prefix = struct.pack("<Q", len(self._message))
        return prefix + self._message + self._inputs + self._outputs + self._spaces

    def _add(self, number: int, value: bytes) -> DumpBuilder:
        self._message += field(number, value)
        return self


def _described(array: NDArray[Any], form: int = _ND) -> bytes:
    shape = b"".join(field(1, length) for length in array.shape)
    return field(1, _DTYPES[array.dtype.name]) + field(2, form) + field(3, shape)


def _fields(numbers: Mapping[str, int], values: Mapping[str, int]) -> bytes:
    return b"".join(field(numbers[name], value) for name, value in values.items())


@pytest.fixture
def dump() -> DumpBuilder:
    return DumpBuilder()


@pytest.fixture
def dump_of() -> Callable[[str], DumpBuilder]:
    """Return what begins the dump file of an operator."""
    return DumpBuilder


@pytest.fixture
def overflow_dump() -> DumpBuilder:
    return DumpBuilder("Node_OpDebug")


@pytest.fixture
def make_deep() -> Iterator[Callable[[Path, str], None]]:
    """Return what makes 3,000 directories in each other, too deep for any path, and a file in the last."""
    made: list[Path] = []

    def make(directory: Path, file: str) -> None:
        made.append(directory / "d")
        fd = os.open(directory, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d", dir_fd=fd)
            below = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)

    yield make
    for directory in made:
        subprocess.run(["rm", "-rf", directory], check=True)
