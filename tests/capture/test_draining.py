"""What is in the ring when a capture ends, and a sink that takes long to store it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import SinkError
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.capture.conftest import Rig

    from dumpstream import WholeFile

pytestmark = pytest.mark.anyio

_FILES = 3000  #: fewer than the ring has room for


class StallingSink(MemorySink):
    """Stores the first files that it is given, and then waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = anyio.Event()

    async def put(self, files: Sequence[WholeFile]) -> Any:
        if self.files:
            await self.goes_on.wait()
        return await super().put(files)


def push_many(rig: Rig) -> None:
    for number in range(_FILES):
        assert rig.push(f"file {number}", b"%d" % number, last=True) == 0


async def test_what_is_not_stored_in_time_is_lost_with_a_line_for_each_file(rig: Rig) -> None:
    sink = StallingSink()
    limited = rig.pushed(sinks=[sink], drain_timeout=0.05)

    with anyio.fail_after(20):
        async with rig.raising(SinkError, r"within drain_timeout; raise", limited) as capture:
            await run_sync(push_many, rig)

    rows = await run_sync(rig.rows)
    lost = {name for name, (row,) in rows.items() if (row.verdict, row.cause) == ("lost", "drain_timeout")}
    assert len(rows) == _FILES
    assert lost == {*rows} - {*sink.files}
    assert 0 < len(sink.files) < _FILES
    assert capture.report.losses["drain_timeout"].chunks == len(lost)
    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]


@pytest.mark.parametrize("limit", [None, 1000])
async def test_what_is_stored_in_time_is_whole(rig: Rig, limit: float | None) -> None:
    sink = StallingSink()

    async with anyio.create_task_group() as tasks, rig.pushed(sinks=[sink], drain_timeout=limit) as capture:
        await run_sync(push_many, rig)

        async def let_go() -> None:
            await rig.until(lambda: bool(sink.files))
            sink.goes_on.set()

        tasks.start_soon(let_go)

    assert capture.report.whole
    assert len(sink.files) == _FILES


async def test_a_full_ring_has_a_second_more_for_each_8_mebibytes(rig: Rig) -> None:
    sink = StallingSink()
    limited = rig.pushed(sinks=[sink], drain_timeout=0)

    async with rig.raising(SinkError, "drain_timeout", limited):
        for number in range(40):
            assert rig.push(f"file {number}", bytes(80_000), last=True) == 0
        await rig.until(lambda: bool(sink.files))
        began = monotonic()

    assert monotonic() - began > 0.2  # of the 3.2 MB, at least half are in the ring until they are stored
