"""Many processes into one collector, some of them killed: every byte handed over is accounted for."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import struct
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import numpy as np
import pytest
import xxhash
from anyio.to_thread import run_sync

from dumpstream.format.verdict import Verdict
from dumpstream.outside.agent import target_environment
from dumpstream.outside.collector import open_collector
from dumpstream.reading.collection import Collection
from dumpstream.reading.problem import Kind
from dumpstream.reading.stored import State
from dumpstream.reading.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dumpstream.reading.stored import StoredCapture
    from dumpstream.reading.storedfile import StoredFile
    from dumpstream.stages.report import Report

pytestmark = pytest.mark.anyio

RANKS = 64
KILLED = 24
ROOT = Path(__file__).parents[2]


class Ledger(NamedTuple):
    """What a producer wrote down: struct ledger."""

    called: int
    taken: int
    refused: int
    bytes: int
    finished: int


class Producer(NamedTuple):
    """A producer that has ended."""

    rank: int
    code: int
    ledger: Ledger


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run once, as the command line does: it takes long."""
    return "asyncio", {"use_uvloop": find_spec("uvloop") is not None}


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """Give a directory that is not kept: it has too many files to look at."""
    yield tmp_path / "run"
    shutil.rmtree(tmp_path / "run", ignore_errors=True)


@pytest.fixture(scope="module")
def producer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that is captured, and the library with the ACL functions that it calls."""
    directory = tmp_path_factory.mktemp("producer")
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    options.append(f"-I{ROOT / 'src/dumpstream/native/include'}")
    compiler = [*shlex.split(os.environ.get("CC", "cc")), *options]
    library, program = directory / "libascendcl.so", directory / "producer"
    acl, source = ROOT / "benchmarks/acl.c", Path(__file__).with_name("producer.c")
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, acl], check=True)
    subprocess.run([*compiler, "-o", program, source, library, f"-Wl,-rpath,{directory}"], check=True)
    return program


def content(rank: int, file: int) -> bytes:
    size = 512 + (rank * 7919 + file * 104729) % 7680
    numbers = np.arange(size, dtype=np.uint32) * 31 + (file * 7 + rank * 13)
    return numbers.astype(np.uint8).tobytes()


def chunk_ends(size: int, file: int) -> list[int]:
    chunks = 1 + file % 3
    return [size * (i + 1) // chunks for i in range(chunks)]


def name(rank: int, file: int) -> str:
    return f"/dump/{rank}/file.{file}"


async def run_producer(command: list[str], environment: dict[str, str], rank: int, ledger: Path) -> Producer:
    async with await anyio.open_process(
        command, env=environment | {"RANK": str(rank)}, stdout=subprocess.DEVNULL, stderr=None
    ) as process:
        code = await process.wait()
    numbers = struct.unpack("5Q", await anyio.Path(ledger).read_bytes())
    return Producer(rank, code, Ledger(*numbers))


async def capture_all(program: Path, out: Path, *, files: int, seed: int) -> tuple[list[Producer], Report]:
    """Capture all producers at once, some of which are killed at some moment."""
    choice = random.Random(seed)
    killed = set(choice.sample(range(RANKS), KILLED))
    ended: list[Producer] = []

    async def run(rank: int, command: list[str]) -> None:
        ended.append(await run_producer(command, environment, rank, Path(command[1])))

    async with open_collector(out) as collector:
        environment = await run_sync(target_environment, collector.socket_path, os.environ)
        environment["LOCAL_WORLD_SIZE"] = str(RANKS)
        async with anyio.create_task_group() as tasks:
            for rank in range(RANKS):
                kill_at = choice.randrange(files) if rank in killed else -1
                ledger, after_ns = out.parent / f"ledger-{rank}", choice.randrange(300_000)
                command = [program, ledger, files, kill_at, after_ns]
                tasks.start_soon(run, rank, [*map(str, command)])
        await collector.idle()
    return sorted(ended), collector.report


def check_capture(producer: Producer, capture: StoredCapture, files: int) -> None:
    """Compare what one producer handed over with what there is of it."""
    rank, ledger = producer.rank, producer.ledger
    captured = sum(file.chunks for file in capture.files)
    lost = sum(loss.chunks for loss in capture.losses)
    assert capture.state is State.FINISHED
    assert ledger.refused == 0
    # Whether the call during which it was killed succeeded is not known; of all other calls it is.
    assert ledger.taken <= captured
    assert captured + lost <= ledger.called <= ledger.taken + 1
    assert ledger.bytes <= sum(file.bytes for file in capture.files)
    assert {loss.cause for loss in capture.losses} <= {"unfinished"}
    assert (producer.code == 0) <= (ledger.finished == 1 and lost == 0)
    stored = {file.name: file for file in capture.files}
    for file in range(files):
        expected = content(rank, file)
        ends = chunk_ends(len(expected), file)
        came, captured = min(captured, len(ends)), max(captured - len(ends), 0)
        found = stored.pop(name(rank, file), None)
        if came:
            assert found is not None
            check_file(found, expected[: ends[came - 1]], whole=came == len(ends))
        elif found is not None:  # the chunk that was being written, if its name had been
            assert (found.verdict, found.bytes, lost) == (Verdict.LOST, 0, 1)
    assert stored == {}


def check_file(found: StoredFile, expected: bytes, *, whole: bool) -> None:
    (part,) = found.parts
    assert found.verdict.whole == whole
    assert (part.offset, part.bytes, part.xxh3) == (0, len(expected), xxhash.xxh3_64_hexdigest(expected))


class Sums:
    """What all captures come to; one is looked at after the other, as they need not fit into memory."""

    def __init__(self) -> None:
        self.files = self.chunks = self.bytes = self.stored_bytes = self.lost_chunks = self.lost_bytes = 0
        self.verdicts: Counter[str] = Counter()

    def add(self, capture: StoredCapture) -> None:
        self.files += len(capture.files)
        for file in capture.files:
            self.chunks += file.chunks
            self.bytes += file.bytes
            self.stored_bytes += file.stored_bytes
            self.verdicts[str(file.verdict)] += 1
        self.lost_chunks += sum(loss.chunks for loss in capture.losses)
        self.lost_bytes += sum(loss.bytes for loss in capture.losses)

    def check(self, report: Report) -> None:
        """Compare what the collector counted with what is in the journals."""
        assert (report.files, report.verdicts) == (self.files, self.verdicts)
        assert (report.chunks, report.bytes) == (self.chunks, self.bytes)
        assert report.stored_bytes == self.stored_bytes
        assert sum(loss.chunks for loss in report.losses.values()) == self.lost_chunks
        assert sum(loss.bytes for loss in report.losses.values()) == self.lost_bytes


def check_everything(producers: Sequence[Producer], report: Report, out: Path, files: int) -> None:
    collection = Collection.open(out)
    sums = Sums()

    assert [it.directory for it in collection.processes or ()] == [f"rank-{rank}" for rank in range(RANKS)]
    assert all(process.ended for process in collection.processes or ())
    for producer, member in zip(producers, collection.members(), strict=True):
        assert member.capture is not None
        assert member.rank == producer.rank
        check_capture(producer, member.capture, files)
        sums.add(member.capture)
    sums.check(report)
    assert report.chunks >= sum(producer.ledger.taken for producer in producers)
    assert report.bytes >= sum(producer.ledger.bytes for producer in producers)


def check_bytes(producers: Sequence[Producer], out: Path) -> None:
    """Read again what is stored of some, killed and not."""
    whole = next(producer.rank for producer in producers if producer.code == 0)
    killed = next(producer.rank for producer in producers if producer.code != 0)

    assert verify(Collection.open(out, [whole])).whole
    kinds = {problem.kind for problem in verify(Collection.open(out, [killed])).problems}
    assert Kind.DIED in kinds <= {Kind.DIED, Kind.VERDICT, Kind.LOSS}


@pytest.mark.parametrize(
    "files",
    [
        1_000,
        pytest.param(20_000, marks=[pytest.mark.scale, pytest.mark.timeout(3600)]),
    ],
)
async def test_every_byte_handed_over_by_many_processes_is_accounted_for(
    producer: Path, out: Path, files: int
) -> None:
    producers, report = await capture_all(producer, out, files=files, seed=files)

    assert {it.code for it in producers} == {0, -signal.SIGKILL}
    await run_sync(check_everything, producers, report, out, files)
    await run_sync(check_bytes, producers, out)
