"""How many requests it takes to list a job of 10,000 ranks, and how long.

The job has 1,250 hosts with 8 ranks each in seaweedfs on this machine: the mark of the job, and the manifest
of every host, as collectors leave them. A proxy in front of the server counts the requests, and lets each
wait 20 ms, as a store in another building would. `Collection.open`, which is what `dumpstream ls` of a job
reads, goes beside one object for each rank, read by as many threads. Once more, a tenth of the hosts still
capture, and their locks are read, too.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import obstore

from countingproxy import counting_proxy
from dumpstream.archive.job import JOB, job_text
from dumpstream.archive.manifest import MANIFEST, Manifest, Process
from dumpstream.archive.rows import timestamp
from dumpstream.objectstore.store import Store
from dumpstream.reading.collection import Collection
from dumpstream.remote.storelock import STORE_LOCK, lock_text
from dumpstream.system.batches import REMOTE_WORKERS
from dumpstream.system.location import Prefix
from figures import Detail, Figure, Floor, parse_arguments, report
from s3server import BUCKET, running_server

if TYPE_CHECKING:
    from obstore.store import S3Store

    from countingproxy import CountingProxy

_RANKS_OF_HOST = 8
_DELAY_S = 0.02
_RUNNING = 10  #: of so many hosts, one is still capturing
_COMMAND = ["python", "/opt/train/train.py", "--config", "/opt/train/configs/large.yaml", "--resume"]


def _manifest(host: int, *, ended: bool) -> bytes:
    """Return the manifest of a host whose processes have been captured."""
    manifest = Manifest(dumpstream="0", created=timestamp(), host=str(host))
    manifest.ended = timestamp() if ended else None
    for place in range(_RANKS_OF_HOST):
        rank = host * _RANKS_OF_HOST + place
        manifest.processes.append(
            Process(
                directory=f"rank-{rank}",
                pid=100_000 + rank,
                parent=99_999,
                command=_COMMAND,
                rank=rank,
                device=place,
                started=timestamp(),
                ended=timestamp() if ended else None,
                ending="exit code 0" if ended else None,
                files=20_000,
                bytes=1 << 40,
                stored_bytes=1 << 39,
                verdicts={"complete": 20_000},
                lost_chunks=0,
            )
        )
    return manifest.text().encode()


def _fill(client: S3Store, job: str, hosts: int, *, running: bool = False) -> None:
    """Leave a job, and what is read of each rank by the baseline."""
    obstore.put(client, f"{job}/{JOB}", job_text())

    def put(host: int) -> None:
        ended = not (running and host % _RUNNING == 0)
        obstore.put(client, f"{job}/{host}/{MANIFEST}", _manifest(host, ended=ended))
        if not ended:
            obstore.put(client, f"{job}/{host}/{STORE_LOCK}", lock_text().encode())
        if not running:
            for place in range(_RANKS_OF_HOST):
                rank = host * _RANKS_OF_HOST + place
                obstore.put(client, f"{job}/{host}/rank-{rank}/{MANIFEST}", b"{}")

    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(put, range(hosts)):
            pass


class Taken(NamedTuple):
    """What one way of listing took."""

    seconds: float
    requests: Counter[tuple[str, str]]  #: by method and the name of the object

    @property
    def total(self) -> int:
        return sum(self.requests.values())


def _listed(proxy: CountingProxy, job: Prefix, ranks: int) -> Taken:
    """Return what it takes to open a job."""
    proxy.requests.clear()
    start = perf_counter()
    collection = Collection.open(job)
    seconds = perf_counter() - start
    assert len(collection.processes or ()) == ranks
    return Taken(seconds, Counter(proxy.requests))


def _read_ranks(proxy: CountingProxy, job: Prefix, hosts: int) -> Taken:
    """Return what it takes to read one object of each rank."""
    proxy.requests.clear()
    store = Store(job)
    keys = [
        f"{host}/rank-{host * _RANKS_OF_HOST + place}/{MANIFEST}"
        for host in range(hosts)
        for place in range(_RANKS_OF_HOST)
    ]
    start = perf_counter()
    with ThreadPoolExecutor(REMOTE_WORKERS) as threads:
        assert all(threads.map(store.get, keys))
    return Taken(perf_counter() - start, Counter(proxy.requests))


def main() -> None:
    """Measure, and print the table."""
    arguments = parse_arguments(__doc__)
    hosts = 40 if arguments.quick else 1250
    ranks = hosts * _RANKS_OF_HOST
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_server(Path(scratch) / "weed") as server,
        counting_proxy(server.port, _DELAY_S) as proxy,
    ):
        os.environ |= server.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        _fill(server.client(), "job", hosts)
        _fill(server.client(), "running", hosts, running=True)
        job = Prefix.parse(f"s3://{BUCKET}/job")
        listed = _listed(proxy, job, ranks)
        each = _read_ranks(proxy, job, hosts)
        growing = _listed(proxy, Prefix.parse(f"s3://{BUCKET}/running"), ranks)
    beside = "one object for each rank"
    figures = [
        Figure(
            name=f"requests to list {ranks:,} ranks of {hosts:,} hosts",
            unit="requests",
            ours=listed.total,
            baseline=each.total,
            beside=beside,
            floor=Floor("ours", "<=", hosts + 16),
        ),
        Figure(
            name="seconds, each request answered after 20 ms",
            unit="s",
            ours=listed.seconds,
            baseline=each.seconds,
            beside=beside,
            floor=Floor("ratio", "<=", 0.5),
        ),
        Figure(
            name="requests while a tenth of the hosts capture",
            unit="requests",
            ours=growing.total,
            baseline=each.total,
            beside=beside,
            floor=Floor("ours", "<=", hosts * 1.25 + 16),
        ),
    ]
    rows = [
        (what, f"{method} {name}".strip(), count)
        for what, taken in (("finished", listed), ("a tenth capturing", growing))
        for (method, name), count in sorted(taken.requests.items())
    ]
    report(arguments, figures, Detail("requests", ("job", "request", "count"), rows))


if __name__ == "__main__":
    main()
