from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from anyio.to_thread import run_sync

from dumpstream import Verdict
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.capture.conftest import Rig

pytestmark = pytest.mark.anyio

#: What must be said of a file with each fault.
VERDICTS = {
    None: Verdict.COMPLETE,
    "nan": Verdict.COMPLETE,
    "missing_last": Verdict.COMPLETE,
    "null_address": Verdict.COMPLETE,
    "stats_text": Verdict.COMPLETE,
    "offsets": Verdict.COMPLETE,
    "shuffle": Verdict.COMPLETE,
    "truncated": Verdict.NEVER_CLOSED,
    "truncated+shuffle": Verdict.NEVER_CLOSED,
    "header_only": Verdict.SHORT,
    "resend_slice": Verdict.LONG,
    "resend_slice+offsets": Verdict.COMPLETE,
    "resend_slice+shuffle": Verdict.COMPLETE,
}


def expected(rig: Rig, workload: Workload) -> dict[str, tuple[Verdict, bytes]]:
    return {file.name: (VERDICTS[file.fault], file.data) for file in workload.expected_files(rig.dump_path)}


def with_fault(fault: str | None) -> Workload:
    """Return a workload in which one file has *fault*."""
    faults = [f"{key}=1" for key in fault.split("+")] if fault else []
    return Workload.parse(",".join(["models=1,ops=3,tensor_bytes=9000-30000,slice_bytes=8192", *faults]))


@pytest.mark.parametrize(
    ("fault", "workload"), [pytest.param(fault, with_fault(fault), id=str(fault)) for fault in VERDICTS]
)
async def test_files_with_a_fault_come_back_with_their_verdict(
    rig: Rig, fault: str | None, workload: Workload
) -> None:
    files = list(workload.expected_files(rig.dump_path))

    report = await rig.run(workload)

    assert any(file.fault == fault for file in files)
    assert await run_sync(rig.read) == expected(rig, workload)
    assert report.chunks == sum(file.chunks for file in files)
    assert report.whole == VERDICTS[fault].whole
    assert not report.losses


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(Workload(), id="small"),
        pytest.param(Workload(ops=20, steps=2, device_threads=4, slice_bytes=4096), id="interleaved"),
        pytest.param(Workload(ops=6, steps=2, tensor_bytes="1-3"), id="tiny"),
        pytest.param(Workload(ops=4, steps=2, cann="8.5"), id="finalize-does-not-wait"),
        pytest.param(Workload(ops=6, slice_bytes=10000, offsets="0.5", queue_bytes=65536), id="mixed"),
        pytest.param(Workload.parse("faults,steps=2"), id="faults"),
        pytest.param(
            Workload(
                flow="on",
                ops=12,
                steps=3,
                single_ops=3,
                rank=1,
                ranks=2,
                nan="rank0:1@1",
                op_types="MatMulV2+Relu+HcomAllReduce",
            ),
            id="flow",
        ),
    ],
)
async def test_every_file_comes_back_byte_for_byte(rig: Rig, workload: Workload) -> None:
    report = await rig.run(workload)

    assert await run_sync(rig.read) == expected(rig, workload)
    assert report.files == sum(report.verdicts.values()) == len(expected(rig, workload))
    assert report.open_files == 0


@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
async def test_slices_larger_than_the_ring_pass_through_it(rig: Rig, tmp_path: Path, in_file: bool) -> None:  # noqa: FBT001 - a parameter
    workload = Workload(models=1, ops=3, inputs=1, tensor_bytes="2000000", slice_bytes=3 << 20)
    files = list(workload.expected_files(rig.dump_path))

    report = await rig.run(workload, buffer_bytes=1 << 20, buffer_file=tmp_path / "ring" if in_file else None)

    assert await run_sync(rig.read) == expected(rig, workload)
    assert report.chunks == sum(file.chunks for file in files) == 2 * len(files)
    assert report.whole


async def test_a_slice_that_comes_again_by_offset_is_counted_and_dropped(rig: Rig) -> None:
    workload = Workload(models=1, ops=2, slice_bytes=8192, resend_slice="1", offsets="1")
    name = next(file.name for file in workload.expected_files(rig.dump_path) if file.fault)

    await rig.run(workload)

    (row,) = (await run_sync(rig.rows))[name]
    assert row.duplicates == 1


async def test_two_sinks_both_get_everything(rig: Rig) -> None:
    workload = Workload(ops=6, tensor_bytes="1000-1000000", slice_bytes=300_000, shuffle="0.3")
    memory = MemorySink()

    report = await rig.run(workload, sinks=["zstd:", memory])

    files = {file.name: file.data for file in workload.expected_files(rig.dump_path)}
    assert {name: b"".join(parts) for name, parts in memory.files.items()} == files
    assert {name: read.data for name, read in (await run_sync(rig.read)).items()} == files
    assert report.whole


async def test_a_consumer_slower_than_the_model_loses_nothing_when_it_blocks(rig: Rig) -> None:
    workload = Workload(ops=20, tensor_bytes="20000-60000", slice_bytes=30_000)

    report = await rig.run(workload, buffer_bytes=1 << 16, level=9, workers=1)

    assert await run_sync(rig.read) == expected(rig, workload)
    assert report.whole


async def test_an_event_loop_that_is_blocked_for_a_while_loses_nothing(rig: Rig) -> None:
    workload = Workload(ops=8, tensor_bytes="20000-60000")

    with SimulatedRuntime(workload) as runtime:
        async with rig.simulated(buffer_bytes=1 << 16) as capture:
            runtime.start()
            runtime.synchronize()  # on the event loop's own thread

    assert await run_sync(rig.read) == expected(rig, workload)
    assert capture.report.whole


async def test_captures_follow_one_another_in_one_process(rig: Rig) -> None:
    workload = Workload(models=1, ops=4)
    steps = []

    with SimulatedRuntime(workload) as runtime:
        for step in range(3):
            async with rig.simulated(append=step > 0) as capture:
                steps.append(await run_sync(runtime.run, 1))
            assert capture.report.whole

    names = [file.name for step in range(3) for file in workload.expected_files(rig.dump_path, step)]
    assert steps == [4, 4, 4]
    assert sorted(await run_sync(rig.read)) == sorted(names)
    assert [end.outcome for end in await run_sync(rig.ends)] == ["finished"] * 3
