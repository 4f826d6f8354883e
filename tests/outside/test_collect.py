"""`dumpstream collect`: a service that processes join, from their environment or from Python."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream import CollectorError, attach

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.conftest import Outside

_ATTACH = """
import sys
import dumpstream
from dumpstream.simulation import SimulatedRuntime, dump_config

with SimulatedRuntime() as runtime:
    with dumpstream.attach(*sys.argv[1:]) as attachment:
        runtime.run()
        try:
            dumpstream.attach(*sys.argv[1:])
        except dumpstream.CollectorError as exc:
            print(exc)
    attachment.leave()
"""


def start_collector(outside: Outside, *flags: object) -> tuple[subprocess.Popen[str], Path]:
    socket = outside.directory / "socket"
    command = ("collect", "--socket", socket, "--out", outside.out, "--buffer-bytes", "32M", *flags)
    process = outside.start(*outside.dumpstream, *command)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert f"DUMPSTREAM_SOCKET={socket}" in line
    assert "LD_PRELOAD=" in line
    return process, socket


def stop(collector: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> str:
    collector.send_signal(number)
    return collector.communicate(timeout=LIMIT_S)[1]


def test_jobs_join_one_after_another_and_side_by_side(outside: Outside) -> None:
    collector, socket = start_collector(outside)
    for ranks in ([0], [1, 2]):
        jobs = [outside.start(*outside.job, env=outside.joined(socket, RANK=str(rank))) for rank in ranks]
        assert [job.wait(40) for job in jobs] == [0] * len(jobs)

    summary = stop(collector)

    assert collector.returncode == 0
    assert [process.directory for process in outside.processes()] == ["rank-0", "rank-1", "rank-2"]
    assert outside.verdicts() == ["complete"] * 48
    assert "finishing what has come" in summary
    assert "48 files (48 complete)" in summary
    assert not socket.exists()


def test_a_job_whose_launcher_counts_one_process_leaves_room_for_another(outside: Outside) -> None:
    collector, socket = start_collector(outside)
    environment = outside.joined(socket, LOCAL_WORLD_SIZE="1")
    waiting = outside.start(
        *(outside.programs.linked, "init", "wait", "finalize"), env=environment, stdin=subprocess.PIPE
    )
    outside.until(outside.processes)
    job = outside.start(*outside.job, env=environment)
    code = job.wait(40)
    waiting.communicate("\n", timeout=LIMIT_S)

    stop(collector)

    assert (code, collector.returncode) == (0, 0)
    assert outside.verdicts() == ["complete"] * 16


def test_a_running_process_joins_from_python(outside: Outside) -> None:
    collector, socket = start_collector(outside, "--config", outside.config)
    job = outside.start(*outside.python(_ATTACH), env={**os.environ, "DUMPSTREAM_SOCKET": str(socket)})
    output, errors = job.communicate(timeout=LIMIT_S)

    stop(collector, signal.SIGTERM)

    assert (job.returncode, errors) == (0, "")
    assert output == "this process has joined a collector already; leave that one first\n"
    assert collector.returncode == 0
    assert outside.verdicts() == ["complete"] * 16
    assert [process.ending for process in outside.processes()] == ["exit code 0"]


def test_a_process_without_acl_that_joins_is_told_and_listed(outside: Outside) -> None:
    collector, socket = start_collector(outside)
    code = "import dumpstream, sys; dumpstream.attach(sys.argv[1])"
    job = outside.start(*outside.python(code, socket))
    errors = job.communicate(timeout=LIMIT_S)[1]

    stop(collector)

    assert errors.endswith("lets a dump callback register; load ACL before you attach\n")
    assert collector.returncode == 3
    (process,) = outside.processes()
    assert (process.problem or "").startswith("acldumpRegCallback returned 500001")


def test_the_second_signal_aborts(outside: Outside) -> None:
    collector, socket = start_collector(outside, "--level", "22", "--workers", "1")
    outside.start(*outside.simulated, "--steps", "100000", env=outside.joined(socket))
    outside.until(lambda: outside.journal_lines() > 2)
    assert collector.stderr is not None

    collector.send_signal(signal.SIGINT)
    assert "again to abort" in collector.stderr.readline()
    errors = stop(collector)

    assert collector.returncode in (1, 3)  # 3 if it had finished by then
    assert collector.returncode == 3 or "aborted" in errors


def test_a_background_job_says_that_sigint_is_ignored_and_sigterm_ends_it(
    outside: Outside,
) -> None:
    collect = [*outside.dumpstream, "collect", "--socket", outside.directory / "socket", "--out", outside.out]
    script = outside.start("sh", "-c", f"{' '.join(map(str, collect))} & wait $!; exit $?")
    assert script.stderr is not None
    assert "listening" in script.stderr.readline()
    line = script.stderr.readline()
    found = re.search(r"SIGINT is ignored.*`kill (\d+)` ends the captures", line)
    assert found
    pid = int(found[1])

    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)

    assert "finishing what has come" in script.communicate(timeout=LIMIT_S)[1]
    assert script.returncode == 0


def test_the_duration_is_that_of_the_service(outside: Outside) -> None:
    collector, socket = start_collector(outside, "--json")
    job = outside.start(*outside.job, env=outside.joined(socket))
    assert job.wait(LIMIT_S) == 0
    outside.until(lambda: any(process.ended for process in outside.processes()))
    began = time.monotonic()
    outside.until(lambda: time.monotonic() > began + 0.5)

    collector.send_signal(signal.SIGTERM)
    output = collector.communicate(timeout=LIMIT_S)[0]

    process = outside.processes()[0]
    lasted = datetime.fromisoformat(process.ended or "") - datetime.fromisoformat(process.started)
    assert json.loads(output)["seconds"] >= 0.5 + lasted.total_seconds() - 0.01


def test_a_place_without_a_collector_cannot_be_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUMPSTREAM_SOCKET", raising=False)

    with pytest.raises(CollectorError, match="cannot be joined: No such file"):
        attach(tmp_path / "socket")
    with pytest.raises(CollectorError, match="set DUMPSTREAM_SOCKET"):
        attach()
