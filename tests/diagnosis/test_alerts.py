"""Bad values that a capture tells while it runs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.diagnosis.runs import Run, T

import dumpstream
from dumpstream.archive.alertrow import AlertRow
from dumpstream.archive.nowhere import Nowhere
from dumpstream.archive.rows import parse_line, read_journal
from dumpstream.cli import main
from dumpstream.diagnosis import alerts
from dumpstream.diagnosis.alerts import Alert, Lookout
from dumpstream.diagnosis.badness import DEFAULT, Badness
from dumpstream.run.alerting import Alerting
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library
from dumpstream.stages.notices import Notices
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WORKLOAD = Workload.parse(
    "flow=on,models=1,ops=6,steps=4,tensor_bytes=256,op_types=MatMulV2+Relu+LayerNorm,nan=4@2"
)
LIBRARY = simulated_library()
A, B, C, D = 0x1000, 0x2000, 0x3000, 0x4000


@pytest.fixture(autouse=True)
def configured(tmp_path: Path) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(dump_config(tmp_path / "npu"))


async def capture_and_hear(directory: Path, **options: Any) -> tuple[list[Alert], bool]:
    """Return the alerts up to the first that blames an operator, and whether the capture still ran then.

    Files finish in any order, so one that only shows where the NaNs went may come before.
    """
    told = []
    with SimulatedRuntime(WORKLOAD) as runtime:
        async with dumpstream.open_capture(
            directory / "run", config=directory / "acl.json", acl_library=LIBRARY, alert=True, **options
        ) as capture:
            await anyio.to_thread.run_sync(runtime.run)
            with anyio.fail_after(60):
                async for alert in capture.alerts():
                    told.append(alert)
                    if alert.origin.blame == "made":
                        break
            running = not capture.ended
    return told, running


def rows_of_alerts(path: Path) -> list[AlertRow]:
    return [row for row in read_journal(path / "journal.jsonl") if isinstance(row, AlertRow)]


@pytest.mark.parametrize("sinks", [["stats:"], ["zstd:"], ["stats:?format=csv"]])
@pytest.mark.parametrize("own_process", [False, True])
def test_the_culprit_is_told_while_the_capture_runs(
    tmp_path: Path, sinks: list[str], *, own_process: bool
) -> None:
    told, running = anyio.run(lambda: capture_and_hear(tmp_path, sinks=sinks, own_process=own_process))

    assert running
    alert = told[-1]
    assert (alert.origin.op_name, alert.origin.step, alert.device) == ("layer_4_Relu", 2, 0)
    assert alert.sentence.startswith(
        "The run made the first NaN: step 2, operator layer_4_Relu (Relu), output 0: 1 of 64 elements; its "
    )
    assert [(row.blame, row.op_name, row.corrects) for row in rows_of_alerts(tmp_path / "run")] == [
        (it.origin.blame, it.origin.op_name, it.corrects) for it in told
    ]
    assert rows_of_alerts(tmp_path / "run")[-1].sentence == alert.sentence


def test_every_reader_passes_over_the_line_of_an_alert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anyio.run(capture_and_hear, tmp_path)
    path = tmp_path / "run"
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    files = sum(b'"type":"file"' in line for line in lines)

    assert rows_of_alerts(path)
    assert main(["verify", str(path)]) == 0
    assert main(["ls", str(path)]) == 0
    assert f"{files} files" in capsys.readouterr().out
    capture = dumpstream.StoredCapture.open(path)
    assert len([*capture.files]) == files
    assert not capture.totals.unreadable


def test_0_1_0_takes_the_line_of_an_alert_for_one_that_says_nothing() -> None:
    line = alert_row().to_line()

    fields = json.loads(line)
    assert (fields["type"], fields["through"]) == ("merged", 0)
    assert parse_line(line.encode()) == alert_row()


def alert_row() -> AlertRow:
    return AlertRow(
        time="now", sentence="s", kind="nan", blame="made", reason="r", corrects=True, file="\udcff\n", step=3
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"time": 1},
        {"corrects": True},
        {**json.loads(alert_row().to_line())["alert"], "step": -1},
        {**json.loads(alert_row().to_line())["alert"], "op_name": ["x"]},
        None,
    ],
)
def test_a_forged_alert_is_an_unreadable_line(fields: object) -> None:
    line = json.dumps({"type": "merged", "through": 0, "alert": fields}).encode()

    assert type(parse_line(line)).__name__ == "UnreadableRow"


def test_what_a_later_version_adds_to_an_alert_is_passed_over() -> None:
    fields = json.loads(alert_row().to_line())
    fields["alert"]["colour"] = "red"

    assert parse_line(json.dumps(fields).encode()) == alert_row()


@pytest.mark.parametrize(
    ("alert", "message"),
    [("drift", "'drift' is not possible while a capture runs"), (["nans"], "'nans' is not a valid")],
)
def test_what_cannot_be_looked_for_is_refused(tmp_path: Path, alert: Any, message: str) -> None:
    async def opened() -> None:
        async with dumpstream.open_capture(tmp_path / "run", alert=alert):
            pass

    with pytest.raises(ValueError, match=message):
        anyio.run(opened)
    assert not (tmp_path / "run").exists()


def test_a_capture_without_alerts_says_how_to_get_them(tmp_path: Path) -> None:
    async def opened() -> None:
        async with dumpstream.open_capture(
            tmp_path / "run", config=tmp_path / "acl.json", acl_library=LIBRARY
        ) as capture:
            capture.alerts()

    with SimulatedRuntime(WORKLOAD), pytest.raises(ValueError, match="open it with alert=True"):
        anyio.run(opened)


def of_operator(run: Run, name: str) -> TensorRows:
    return TensorRows(row for row in run.rows if row.op_name == name)


def heard(lookout: Lookout, *parts: TensorRows) -> list[tuple[str | None, str, bool]]:
    for rows in parts:
        lookout.hear(rows)
    return [(it.origin.op_name, str(it.origin.blame), it.corrects) for it in lookout.judge()]


def test_a_file_that_comes_late_corrects_the_alert_once() -> None:
    run = Run()
    run.op("Mul.a", [T(A, 1)], [T(B, 2, nan=1)], task=1)
    run.op("Add.b", [T(B, 2, nan=1)], [T(C, 3, nan=1)], task=2)
    run.op("Add.c", [T(C, 3, nan=1)], [T(D, 4, nan=1)], task=3)
    lookout = Lookout(DEFAULT, wake=bool)

    assert heard(lookout, of_operator(run, "b")) == [("b", "unknown", False)]
    assert heard(lookout, of_operator(run, "c")) == []
    assert heard(lookout, of_operator(run, "a")) == [("a", "made", True)]
    assert heard(lookout) == []


def test_the_devices_of_a_process_are_told_apart() -> None:
    run = Run()
    for rank in range(2):
        run.op("Mul.a", [T(A, 1)], [T(B, 2 + rank, nan=1)], task=1, rank=rank)

    assert heard(Lookout(DEFAULT, wake=bool), run.rows) == [("a", "made", False)] * 2


def test_a_process_that_invents_devices_has_few_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_MOST_DEVICES", 5)
    lookout = Lookout(DEFAULT, wake=bool)
    told = []
    for first in range(0, 30, 10):
        run = Run()
        for rank in range(first, first + 10):
            run.op("Mul.a", [T(A, 1)], [T(B, 2 + rank, nan=1)], task=1, rank=rank)
        told += heard(lookout, run.rows)

    assert told == [("a", "made", False)] * 5


def of_device(run: Run, device: int) -> TensorRows:
    return TensorRows(replace(row, device=device) for row in run.rows)


def test_the_first_bad_tensor_of_another_device_does_not_wait_for_the_pause_after_a_long_judgement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = Lookout.judge

    def judge_slowly(lookout: Lookout) -> list[Alert]:
        time.sleep(0.5)  # so that judging is to rest for longer than this test has
        return judge(lookout)

    async def until_told(alerting: Alerting, count: int) -> None:
        with anyio.fail_after(15):
            while len(alerting.told) < count:  # noqa: ASYNC110 - nothing else tells it
                await anyio.sleep(0.01)

    async def hear(run: Run) -> list[int | None]:
        alerting = Alerting(DEFAULT, Notices())
        async with anyio.create_task_group() as tasks:
            journal = Nowhere()
            tasks.start_soon(alerting.run, journal)
            for device in (0, 1):
                alerting.lookout.hear(of_device(run, device))
                await until_told(alerting, device + 1)
            await alerting.finish(journal)
        return [alert.device for alert in alerting.told]

    monkeypatch.setattr(Lookout, "judge", judge_slowly)
    run = Run()
    run.op("Mul.a", [T(A, 1)], [T(B, 2, nan=1)], task=1)

    assert anyio.run(hear, run) == [0, 1]


def test_only_the_first_bad_tensor_of_a_device_is_pressing() -> None:
    run = Run()
    run.op("Mul.a", [T(A, 1)], [T(B, 2, nan=1)], task=1)
    lookout = Lookout(DEFAULT, wake=bool)
    pressing = []
    for device in (0, 0, 1, 1):
        lookout.hear(of_device(run, device))
        pressing.append(lookout.pressing)
        lookout.judge()

    assert pressing == [True, False, True, False]


def test_rows_are_kept_only_as_long_as_they_may_be_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_ROWS", 10)
    woken = []
    lookout = Lookout(DEFAULT, wake=lambda: woken.append(1))
    for step in range(50):
        run = Run().op("Mul.a", [T(A, step)], [T(B, 100 + step)], task=1, step=step)
        lookout.hear(run.rows)
        assert lookout._rows <= 10 + 2
    assert not woken

    for step in range(50, 60):
        bad = T(B, 100 + step, nan=1)
        lookout.hear(Run().op("Mul.a", [T(A, step)], [bad], task=1, step=step).rows)

    assert len(woken) == 5  # up to ten rows, of two each, behind the first bad one
    (alert,) = lookout.judge()
    assert (alert.origin.step, alert.origin.blame) == (50, "made")
    assert not lookout._kept


def masked_steps(steps: int, *, nan: int) -> list[TensorRows]:
    """Return the rows of each of *steps*, which all have a mask of infinities; that of *nan* makes a NaN."""
    mask = T(B, 2, more={"neg_inf": 4})
    found = []
    for step in range(steps):
        run = Run().op("MaskedFill.mask", [T(A, 1)], [mask], task=1, step=step)
        run.op("Softmax.softmax", [mask], [T(C, 3)], task=2, step=step)
        found.append(
            run.op("Mul.culprit", [T(C, 3)], [T(D, 4, nan=int(step == nan))], task=3, step=step).rows
        )
    return found


@pytest.mark.parametrize("look_for", [DEFAULT, [Badness.NAN]])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_nan_is_told_however_long_after_an_infinity(
    monkeypatch: pytest.MonkeyPatch, look_for: Sequence[Badness], *, at_once: bool
) -> None:
    monkeypatch.setattr(alerts, "_ROWS", 12)
    lookout = Lookout(look_for, wake=bool)
    told = []
    for rows in masked_steps(40, nan=20):
        lookout.hear(rows)
        told += [] if at_once else heard(lookout)
    told += heard(lookout)

    mask, culprit = ("mask", "made", False), ("culprit", "made", False)
    assert told == ([culprit] if look_for == [Badness.NAN] else [mask, culprit])
    assert lookout.over


def test_an_alert_that_fails_leaves_the_capture_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def capture() -> dumpstream.Report:
        with SimulatedRuntime(WORKLOAD) as runtime:
            async with dumpstream.open_capture(
                tmp_path / "run",
                config=tmp_path / "acl.json",
                acl_library=LIBRARY,
                alert=True,
                own_process=False,
            ) as capture:
                await anyio.to_thread.run_sync(runtime.run)
        return capture.report

    monkeypatch.setattr(alerts, "gather", lambda *_, **__: 1 / 0)

    report = anyio.run(capture)

    assert report.whole
    assert "not searched for bad values any more: ZeroDivisionError" in caplog.text
