"""Alerts and the command that each is given to, which a hostile process can make many of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dumpstream.cli import _alerts
from dumpstream.cli._alerts import AlertTeller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


class CaptureWithAlerts:
    """A capture that has ended, and has told *count* alerts."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def alerts(self) -> AsyncIterator[Any]:
        for number in range(self._count):
            yield SimpleNamespace(file="f", sentence=f"sentence {number}", corrects=False, origin=None)


async def test_many_alerts_do_not_keep_a_slow_command_from_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_alerts, "_LONGEST_S", 0.3)
    monkeypatch.setattr(_alerts, "asdict", lambda _: {})
    ran = tmp_path / "ran"

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            teller = AlertTeller(tasks, f"echo >> {ran}; sleep 0.05")
            teller.tell(CaptureWithAlerts(1000))  # type: ignore[arg-type]
            await teller.finish()

    told = capsys.readouterr().err
    started = ran.read_text().count("\n")
    assert 0 < started < 100
    assert told.count("alert: sentence") == 1000
    assert f"--on-alert was not run for the last {1000 - started} alerts" in told
