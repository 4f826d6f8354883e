from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from dumpstream.outside.collectorrequest import CollectorRequest, sink_below
from dumpstream.outside.shares import Shares
from dumpstream.sharedsource import SharedSource
from dumpstream.stages.options import StageOptions

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream.stages.options import CaptureOptions


@pytest.mark.parametrize(
    ("sink", "of_process"),
    [
        ("s3://bucket/run?region=x", "s3://bucket/run/rank-0?region=x"),
        ("stats:dir?format=csv", "stats:dir/rank-0?format=csv"),
        ("stats:?format=csv", "stats:?format=csv"),
        ("zstd:", "zstd:"),
    ],
)
def test_each_process_of_a_collector_has_a_place_of_its_own(sink: str, of_process: str) -> None:
    assert sink_below(sink, "rank-0") == of_process


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("captures", "open_bytes"), [(1, 64 << 20), (4, 16 << 20), (1000, 2 << 20)], ids=["one", "four", "many"]
)
async def test_each_process_has_its_part_of_the_memory_for_open_files(
    tmp_path: Path, captures: int, open_bytes: int
) -> None:
    stages = StageOptions.divide({}, directory=tmp_path)
    request = CollectorRequest(destination=tmp_path, stages=stages)

    async with aclosing(Shares(16 << 20, None)) as shares:
        share = await shares.take(None, "ring")
        part = request.part("rank-0", SharedSource(share.ring), captures)
        await share.aclose()

    assert part.stages.reassembly.max_open_bytes == open_bytes


@pytest.mark.anyio
async def test_four_processes_have_a_quarter_of_what_they_have_together(tmp_path: Path) -> None:
    options: CaptureOptions = {
        "held_bytes": 4000,
        "gathered_bytes": 8000,
        "max_descriptors": 400,
        "spill_bytes": 12_000,
    }
    request = CollectorRequest(destination=tmp_path, stages=StageOptions.divide(options, directory=tmp_path))

    async with aclosing(Shares(16 << 20, None)) as shares:
        share = await shares.take(None, "ring")
        stages = request.part("rank-0", SharedSource(share.ring), 4).stages
        await share.aclose()

    assert (stages.pipeline.held_bytes, stages.pipeline.gathered_bytes) == (1000, 2000)
    assert (stages.sinks.max_descriptors, stages.sinks.spill_bytes) == (100, 3000)
