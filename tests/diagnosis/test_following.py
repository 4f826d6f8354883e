"""A run that is diagnosed while it is captured."""

from __future__ import annotations

from pathlib import Path

import anyio

import dumpstream
from dumpstream.diagnosis.following import follow, is_running
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

WORKLOAD = Workload.parse(
    "flow=on,models=1,ops=6,steps=4,tensor_bytes=256,op_types=MatMulV2+Relu+LayerNorm,nan=4@2"
)
LIBRARY = simulated_library()


class EnoughError(Exception):
    """The test has seen what it waited for."""


def follow_until_told(path: Path) -> tuple[bool, str]:
    """Return whether *path* is being captured, and the first that is told about it."""
    told: list[str] = []

    def pause(_: float) -> None:
        if told:
            raise EnoughError

    running = is_running(path)
    try:
        follow(path, tell=told.append, pause=pause)
    except EnoughError:
        return running, told[0]
    raise AssertionError("the capture ended")


async def capture_and_follow(directory: Path) -> tuple[bool, str]:
    """Capture a run, and follow it before the capture has ended."""
    with SimulatedRuntime(WORKLOAD) as runtime:
        async with dumpstream.open_capture(
            directory / "run",
            config=directory / "acl.json",
            acl_library=LIBRARY,
            sinks=["zstd:"],
        ):
            await anyio.to_thread.run_sync(runtime.run)
            return await anyio.to_thread.run_sync(follow_until_told, directory / "run")


def test_the_first_nan_is_told_before_the_capture_ends(tmp_path: Path) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(dump_config(tmp_path / "npu"))

    running, told = anyio.run(capture_and_follow, tmp_path)

    assert running
    assert told.startswith("Made the first NaN: step 2, operator layer_4_Relu (Relu), output 0: ")
    assert follow(tmp_path / "run") == told
    assert not is_running(tmp_path / "run")
