"""What `stats` of a job takes on a cluster, beside one process.

A job of 64 ranks with 1,000 files each is in seaweedfs on this machine, an object for each file. `stats`
reads it in one process, and with `--engine` on one and on two dask workers, which are processes of their own
with one thread each, and writes Parquet. The clock of a command runs from its start to its end; CPU is that
of the command and the workers, without the server. All of them share the processors of this machine with the
server: the rate of CPU time tells what a worker on a machine of its own does.

Then: what a task costs that does nothing, the requests for one rank, counted by a proxy, and the same rank
with a proxy that delays each request by 20 ms, beside what the model of docs/scale.md says.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import IO, TYPE_CHECKING, NamedTuple

import obstore
import pyarrow.parquet

from delayingproxy import DelayingProxy
from dumpstream.engine.daskengine import compute_on_dask
from dumpstream.engine.part import PartWriter
from dumpstream.engine.partsplace import PartsDirectory
from dumpstream.engine.plan import Plan
from dumpstream.system.batches import REMOTE_WORKERS
from figures import Detail, Figure, Floor, parse_arguments, report
from s3server import BUCKET, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dumpstream.engine.plan import Heading
    from s3server import S3Server

_BIN = Path(sys.executable).parent
_WORKLOAD = "models=1,steps=10,ops={},tensor_bytes=256-4096"
_DELAY_S = 0.02
_UPLOADS = 64
_EMPTY_TASKS = 512


class Round(NamedTuple):
    """How long a command took."""

    seconds: float
    cpu_s: float


class EmptyTask(NamedTuple):
    """A task that reads nothing."""

    label: str = "nothing"
    digest: str = ""

    def open(self) -> EmptyTask:
        """Return the work, which is none."""
        return self

    def write(self, file: IO[bytes], heading: Heading) -> None:
        """Write an empty part."""
        with PartWriter(file, heading, pyarrow.schema([("nothing", pyarrow.binary())])) as part:
            part.close({})


def _run(*arguments: str, environment: Mapping[str, str] | None = None) -> None:
    command = [str(_BIN / "dumpstream"), *arguments]
    subprocess.run(command, check=True, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL)


def _capture(directory: Path, files: int, *flags: str) -> Path:
    """Capture one rank with about so many files, and return its directory."""
    ops = max(files // 10, 1)
    words = ["simulate", "--ranks", "1", "--workload", _WORKLOAD.format(ops)]
    _run("capture", "--out", str(directory), "--quiet", *flags, "--", str(_BIN / "dumpstream"), *words)
    return directory


def _upload(server: S3Server, capture: Path, prefix: str, ranks: int) -> None:
    """Put the capture of one rank into the store, as that of so many."""
    manifest = json.loads((capture / "manifest.json").read_text())
    (process,) = manifest["processes"]
    own = capture / process["directory"]
    manifest["processes"] = [{**process, "directory": f"rank-{it}", "rank": it} for it in range(ranks)]
    files = {str(it.relative_to(own)): it.read_bytes() for it in own.rglob("*") if it.is_file()}
    objects = (
        (f"{prefix}/rank-{rank}/{name}", data) for rank in range(ranks) for name, data in files.items()
    )
    client = server.client()

    async def work() -> None:
        for key, data in objects:
            await obstore.put_async(client, key, data)

    async def upload() -> None:
        await asyncio.gather(*[work() for _ in range(_UPLOADS)])
        await obstore.put_async(client, f"{prefix}/manifest.json", json.dumps(manifest).encode())

    asyncio.run(upload())


@contextmanager
def _cluster(directory: Path, workers: int) -> Iterator[tuple[str, list[int]]]:
    """Run a scheduler and so many workers; gives its address, and the processes of the workers."""
    file = directory / f"scheduler-{workers}.json"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    worker = ["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny"]
    with Path(os.devnull).open("wb") as null:
        processes = [
            subprocess.Popen(
                [_BIN / "dask", *it, "--no-dashboard"], env=environment, stdout=null, stderr=null
            )
            for it in [scheduler, *[worker] * workers]
        ]
    try:
        while not file.exists():
            sleep(0.05)
        yield json.loads(file.read_text())["address"], [it.pid for it in processes[1:]]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _cpu_of(pids: Sequence[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split() for pid in pids]
    return sum(int(it[11]) + int(it[12]) for it in fields) / os.sysconf("SC_CLK_TCK")


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _stats(
    out: Path, prefix: str, *flags: str, environment: Mapping[str, str], workers: Sequence[int] = ()
) -> Round:
    out.unlink(missing_ok=True)
    before = _cpu_of(workers) + _cpu_of_children()
    start = perf_counter()
    location = f"s3://{BUCKET}/{prefix}"
    words = ["stats", location, "--format", "parquet", "--out", str(out), "--quiet", *flags]
    _run(*words, environment=environment)
    seconds = perf_counter() - start
    return Round(seconds, _cpu_of(workers) + _cpu_of_children() - before)


def _overhead(address: str, directory: Path) -> float:
    """Return the seconds that a task takes which does nothing."""
    plan = Plan({"command": "nothing"}, [EmptyTask()] * _EMPTY_TASKS)
    start = perf_counter()
    compute_on_dask(plan, PartsDirectory(directory / "empty"), address, lambda _: None)
    return (perf_counter() - start) / _EMPTY_TASKS


def _without_cache(directory: Path) -> dict[str, str]:
    """Return an environment in which no journal is known yet."""
    cache = tempfile.mkdtemp(dir=directory)
    return {"XDG_CACHE_HOME": cache}


def _measure(server: S3Server, directory: Path, ranks: int, files: int) -> tuple[list[Figure], list[Detail]]:
    capture = _capture(directory / "capture", files)
    _upload(server, capture, "job", ranks)
    _upload(server, capture, "rank", 1)
    one = _stats(directory / "one.parquet", "job", environment=_without_cache(directory))
    total = pyarrow.parquet.read_table(directory / "one.parquet", columns=["file"])
    found = len(set(total.column("file").to_pylist()))
    rows: list[tuple[str, float, float, float, float]] = [
        ("one process", one.seconds, found / one.seconds, one.cpu_s, found / one.cpu_s)
    ]
    figures = []
    overhead = 0.0
    for count in (1, 2):
        with _cluster(directory, count) as (address, workers):
            overhead = _overhead(address, directory) if count == 1 else overhead
            taken = _stats(
                directory / "cluster.parquet",
                "job",
                "--engine",
                f"dask={address}",
                workers=workers,
                environment=_without_cache(directory),
            )
        _refuse_difference(directory)
        name = f"{count} worker{'s' * (count > 1)}"
        rows.append((name, taken.seconds, found / taken.seconds, taken.cpu_s, found / taken.cpu_s))
        for unit, value, beside in (
            ("files/s", found / taken.seconds / count, found / one.seconds),
            ("files/CPU s", found / taken.cpu_s, found / one.cpu_s),
        ):
            figures.append(
                Figure(
                    name=f"{name}, {'each' if unit == 'files/s' else 'CPU'}",
                    unit=unit,
                    ours=value,
                    baseline=beside,
                    beside="one process",
                    floor=Floor("ratio", ">=", 0.8),
                )
            )
    details = [Detail("stats of the job", ("how", "s", "files/s", "CPU s", "files/CPU s"), rows)]
    _upload(server, _capture(directory / "packed", files, "--pack"), "packed", 1)
    return figures, [*details, _model(server, directory, found // ranks, one.cpu_s / found, overhead)]


def _model(server: S3Server, directory: Path, files: int, cpu_s: float, overhead: float) -> Detail:
    """Measure one rank near and far, and tell what is expected of the one that is far."""
    taken = []
    for prefix, delay in (("rank", 0.0), ("rank", _DELAY_S), ("packed", 0.0)):
        with DelayingProxy(server.port, delay).running() as proxy:
            endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
            environment = {**_without_cache(directory), **endpoint}
            seconds = _stats(directory / "rank.parquet", prefix, environment=environment).seconds
            taken.append((seconds, proxy.requests))
    (near, requests), (far, _), (_, packed) = taken
    alone = requests - files
    # Threads wait while others compute.
    expected = near + _DELAY_S * alone + max(_DELAY_S * files / REMOTE_WORKERS - cpu_s * files, 0)
    rows = [
        ("a task that does nothing", overhead * 1000, "ms"),
        ("files of a rank", files, ""),
        ("requests for it, one after another", alone, ""),
        (f"requests for its files, {REMOTE_WORKERS} at a time", files, ""),
        ("requests for a rank in packs", packed, ""),
        ("CPU for a file", cpu_s * 1000, "ms"),
        ("one rank, near", near, "s"),
        ("one rank, each request 20 ms later", far, "s"),
        ("the same by the model", expected, "s"),
        ("measured by model", far / expected, "x"),
    ]
    return Detail("model", ("what", "value", "unit"), rows)


def _refuse_difference(directory: Path) -> None:
    one, cluster = (pyarrow.parquet.read_table(directory / f"{it}.parquet") for it in ("one", "cluster"))
    if not cluster.equals(one):
        raise RuntimeError("the cluster has found other rows than one process")


def main() -> None:
    """Measure, and print."""
    arguments = parse_arguments(__doc__)
    ranks, files = (4, 100) if arguments.quick else (64, 1000)
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as name:
        directory = Path(name)
        with running_server(directory / "weed") as server:
            os.environ |= server.environment
            figures, details = _measure(server, directory, ranks, files)
    report(arguments, figures, *details)


if __name__ == "__main__":
    main()
