"""Bad values that a capture tells while it runs."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import dumpstream
from dumpstream.diagnosis.alerts import Alert
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

WORKLOAD = Workload.parse(
    "flow=on,models=1,ops=6,steps=4,tensor_bytes=256,op_types=MatMulV2+Relu+LayerNorm,nan=4@2"
)
LIBRARY = simulated_library()


async def first_blame(directory: Path, sinks: list[str]) -> tuple[Alert, bool]:
    """Return the first alert that blames an operator, and whether the capture was still running.

    Files finish in any order, so one that only shows where the NaNs went may come before.
    """
    with SimulatedRuntime(WORKLOAD) as runtime:
        async with dumpstream.open_capture(
            directory / "run", config=directory / "acl.json", acl_library=LIBRARY, sinks=sinks
        ) as capture:
            alerts = capture.alerts()
            await anyio.to_thread.run_sync(runtime.run)
            with anyio.fail_after(60):
                alert = await anext(alerts)
                while alert.origin.blame != "made":
                    alert = await anext(alerts)
            running = not capture.ended
            await alerts.aclose()
    return alert, running


@pytest.mark.parametrize("sinks", [["stats:"], ["zstd:"]], ids=["rows-of-the-sink", "measured"])
def test_the_culprit_is_told_while_the_capture_runs(tmp_path: Path, sinks: list[str]) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(dump_config(tmp_path / "npu"))

    alert, running = anyio.run(first_blame, tmp_path, sinks)

    assert running
    assert (alert.origin.op_name, alert.origin.step, alert.origin.blame) == ("layer_4_Relu", 2, "made")
    assert alert.sentence.startswith(
        "nan in step 2, layer_4_Relu (Relu), output 0: made: its inputs are clean"
    )
