"""What a page is told of a run that is read, measured, compared, that grows or goes away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

import anyio
import pytest
from tests.conftest import LIMIT_S, CaptureBuilder
from tests.view.conftest import dumpstream
from tests.view.test_against import captured

from dumpstream.archive.destination import Destination
from dumpstream.archive.pulse import Pulse
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.view import watch as watching
from dumpstream.view.against import compare_rows
from dumpstream.view.packing import unpack
from dumpstream.view.rates import Rates
from dumpstream.view.status import status_of
from dumpstream.view.watch import Watch

pytestmark = pytest.mark.anyio

_WORKLOAD = "models=1,ops=4,steps=3,flow=on,tensor_bytes=256-1024"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


async def told_by(watch: Watch, until: Callable[[dict[str, Any]], object]) -> list[dict[str, Any]]:
    """Let *watch* work for a page until it tells what is waited for; return everything that it told."""
    heard = [watch.told]
    watch.shown.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.work)
        tasks.start_soon(watch.follow)
        with anyio.fail_after(LIMIT_S):
            while not until(heard[-1]):
                heard.append(await watch.changed(heard[-1]))
        tasks.cancel_scope.cancel()
    return heard


async def test_map_is_there_before_the_sentence(tmp_path: Path) -> None:
    watch = Watch(captured(tmp_path / "run", f"{_WORKLOAD},nan=2@1"))
    watch.open()
    assert watch.packed
    assert watch.told["sentence"] is None

    heard = await told_by(watch, lambda told: told["sentence"])

    assert "layer_2_" in heard[-1]["sentence"]
    assert heard[-1]["origin"] is not None


async def test_second_visit_knows_the_sentence_and_the_difference_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = captured(tmp_path / "run", f"{_WORKLOAD},nan=2@1"), captured(tmp_path / "other", _WORKLOAD)
    first, second = (Watch(runs[0], against=runs[1]) for _ in range(2))
    first.open()
    expected = (await told_by(first, lambda told: "version" in told["against"]))[-1]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("dumpstream.view.snapshot.read_scene", refuse)
    second.open()
    with suppress(BaseExceptionGroup):  # the details are read behind what is told
        found = (await told_by(second, lambda told: "version" in told["against"]))[-1]

    assert found["against"] == expected["against"]
    assert found["sentence"] == expected["sentence"]
    assert second.packed_against == first.packed_against
    assert second.packed == first.packed


async def test_progress_of_a_comparison_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_TELL_S", 0.01)
    runs = captured(tmp_path / "run", f"{_WORKLOAD},nan=2@1"), captured(tmp_path / "other", _WORKLOAD)
    watch = Watch(runs[0], against=runs[1])
    watch.open()
    seen = anyio.Event()

    def slowly(*args: Any, told: Callable[[int, int], None], **options: Any) -> Any:
        told(7, 0)
        anyio.from_thread.run(seen.wait)
        return compare_rows(*args, told=told, **options)

    monkeypatch.setattr(watching, "compare_rows", slowly)

    def is_compared(told: dict[str, Any]) -> bool:
        if told.get("doing", {}).get("done") == 7:
            seen.set()
        return "version" in told["against"]

    heard = await told_by(watch, is_compared)

    doing = [told["doing"] for told in heard if told.get("doing", {}).get("what") == "comparing"]
    tensors = len(unpack(watch.packed)[1]["row"])
    assert {"what": "comparing", "done": 7, "of": tensors} in doing


async def test_large_run_without_statistics_is_measured_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_ASK_BYTES", 1000)
    watch = Watch(captured(tmp_path / "run", _WORKLOAD))
    watch.open()
    assert watch.packed == b""
    assert watch.told["offer"]["files"] == 12

    watch.asked.set()
    heard = await told_by(watch, lambda told: watch.packed and not told.get("doing"))

    assert "offer" not in heard[-1]
    assert heard[-1]["version"] == watch.status["version"]


async def test_run_that_goes_away_is_said_and_seen_again(tmp_path: Path) -> None:
    run = captured(tmp_path / "run", _WORKLOAD)
    watch = Watch(run)
    watch.open()
    run.rename(tmp_path / "away")

    heard = await told_by(watch, lambda told: "problem" in told)
    assert str(run) in heard[-1]["problem"]

    (tmp_path / "away").rename(run)
    await told_by(watch, lambda told: "problem" not in told)
    assert watch.packed


async def test_alert_in_the_journal_is_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = ["simulate", "--ranks", "2", "--workload", f"{_WORKLOAD}", "--fault", "rank1:nan=2@1"]
    await anyio.run_process(
        dumpstream("capture", "--out", run, "--quiet", "--alert", "--", *dumpstream(*job)), check=False
    )

    alerts = status_of(run)["alerts"]

    assert [(it["rank"], it["step"], it["process"]) for it in alerts] == [(1, 1, "rank-1")]
    assert "layer_2_" in alerts[0]["sentence"]


def test_ring_and_losses_of_a_running_process_are_in_the_status(tmp_path: Path) -> None:
    destination = Destination.open(tmp_path / "run")
    destination.begin_run({})
    pulse = Pulse(time=time(), ring_bytes=100, ring_fill=90, bytes=5, losses={"ring full": (2, 20)})
    destination.tell(pulse)

    (member,) = status_of(tmp_path / "run")["members"]

    assert member["ring"] == {"bytes": 100, "fill": 90}
    assert member["losses"] == {"ring full": [2, 20]}
    destination.tell(Pulse(time=time() - 3600, ring_bytes=100, ring_fill=90))
    (member,) = status_of(tmp_path / "run")["members"]
    assert "ring" not in member
    destination.close()


def test_rate_is_what_came_between_two_looks() -> None:
    rates = Rates()
    member = {"name": "rank-0", "state": "running", "bytes": 0}
    statuses = [{"members": [{**member, "received": size}]} for size in (1000, 5000)]
    for status in statuses:
        rates.note(status)

    first, second = (status["members"][0] for status in statuses)
    assert "rate" not in first
    assert int(str(second["rate"])) > 0


def test_interrupted_capture_is_read_and_called_so(builder: CaptureBuilder) -> None:
    for file in Workload.parse(_WORKLOAD).expected_files("/dump"):
        builder.add(file.name, file.data, Verdict.COMPLETE)

    watch = Watch(builder.interrupt())
    watch.open()

    assert watch.status["state"] == "interrupted"
    assert watch.packed


def test_port_that_is_taken_is_said_with_a_remedy(tmp_path: Path) -> None:
    run = captured(tmp_path / "run", _WORKLOAD)
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = subprocess.run(
            dumpstream("view", run, "--no-browser", "--port", other.getsockname()[1]),
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert "choose another --port" in done.stderr
    assert "Traceback" not in done.stderr


#: A browser that says what it got, and stays open.
_BROWSER = f"""#!{sys.executable}
import http.client, signal, sys, urllib.parse
asked = urllib.parse.urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(asked.netloc, timeout={LIMIT_S / 4})
try:
    connection.request("GET", f"/?{{asked.query}}")
    print(connection.getresponse().status, flush=True)
except OSError as exc:
    print(exc, flush=True)
signal.pause()
"""


def test_a_browser_that_stays_open_gets_the_page(tmp_path: Path) -> None:
    run, browser = captured(tmp_path / "run", _WORKLOAD), tmp_path / "browser"
    browser.write_text(_BROWSER)
    browser.chmod(0o700)

    with subprocess.Popen(
        dumpstream("view", run),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"BROWSER": str(browser)},
        start_new_session=True,
    ) as server:
        assert server.stdout is not None
        try:
            printed, got = server.stdout.readline(), server.stdout.readline()
        finally:
            os.killpg(server.pid, signal.SIGKILL)

    assert printed.startswith("http://127.0.0.1:")
    assert got == "303\n"
