"""Consumers of the files and the alerts of processes that a collector captures."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S

from dumpstream import StoredCapture, open_collector, target_environment
from dumpstream.run.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream import Alerts, Capture, CapturedProcess, Collector, Files

pytestmark = pytest.mark.anyio

_JOB = [
    sys.executable,
    "-m",
    "dumpstream",
    "simulate",
    "--ranks",
    "2",
    "--fault",
    "rank1:nan=3@1",
    "--workload",
]
_JOB.append("flow=on,models=1,ops=8,steps=3,tensor_bytes=256-1024,op_types=MatMulV2+Relu+LayerNorm")


def run_job(collector: Collector) -> None:
    environment = target_environment(collector.socket_path, os.environ)
    subprocess.run(_JOB, env=environment, check=True, stdout=subprocess.DEVNULL)


def names_in(path: Path) -> set[str]:
    return {file.name for file in StoredCapture.open(path).files}


async def test_what_is_told_of_every_process_from_its_first_file_on(tmp_path: Path) -> None:
    files: dict[str, set[str]] = {}
    blamed: list[tuple[str, str]] = []

    async def consume(label: str, files_of_process: Files) -> None:
        files[label] = {file.name async for file in files_of_process if await file.read()}

    async def hear(label: str, alerts: Alerts) -> None:
        blamed.extend([(label, alert.origin.blame) async for alert in alerts])

    def begin(process: CapturedProcess, capture: Capture) -> None:
        tasks.start_soon(consume, process.label, capture.files())
        tasks.start_soon(hear, process.label, capture.alerts())

    with anyio.fail_after(LIMIT_S):
        async with (
            anyio.create_task_group() as tasks,
            open_collector(tmp_path / "job", buffer_bytes=16 << 20, alert=True) as collector,
        ):
            collector.when_captured(begin)
            await run_sync(run_job, collector)
            await collector.idle()

    for rank in ("rank-0", "rank-1"):
        assert files[rank] == await run_sync(names_in, tmp_path / "job" / rank)
        assert len(files[rank]) == 24
    assert blamed[-1] == ("rank-1", "made")


async def test_an_unforeseen_error_of_one_capture_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Session) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(Session, "_tell", fail)
    with anyio.fail_after(LIMIT_S):
        async with open_collector(tmp_path / "job", buffer_bytes=16 << 20) as collector:
            await run_sync(run_job, collector)
            await collector.idle()

    assert [process.failure for process in collector.processes] == ["unforeseen"] * 2
