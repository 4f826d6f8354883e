from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio
import pytest

from dumpstream._native import SharedRing
from dumpstream.archive.rows import LossRow
from dumpstream.sharedsource import SharedSource

if TYPE_CHECKING:
    from dumpstream import Chunk
    from dumpstream._native import Lease

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_SIZE = 1 << 20


class EndlessRing:
    """A ring whose process goes on writing whatever it is told, and counts as it likes."""

    def __init__(self) -> None:
        self.left = -1  #: batches; any number before the end is settled
        self.discarded = False

    def lease(
        self, _records: int, _bytes: int, /
    ) -> tuple[list[Chunk], list[tuple[str, str, int, bool]], Lease | None, int | None] | None:
        if self.left == 0:
            return None
        self.left -= 1
        return [], [("", "unfinished", 16, False), ("name", "timeout", 1, False)], None, None

    def statistics(self) -> tuple[int, int, int, int, int, dict[str, tuple[int, int]]]:
        largest = (1 << 64) - 1
        return _SIZE, 1, largest, largest, largest, {"timeout": (largest, largest)}

    def discard(self) -> None:
        self.discarded = True

    def producer_died(self) -> None:
        self.left = 3


async def test_a_process_that_goes_on_writing_cannot_keep_its_source_from_ending() -> None:
    ring = EndlessRing()
    source = SharedSource(cast("SharedRing", ring))
    await source.receive()

    await source.stop()

    assert ring.discarded
    with anyio.fail_after(20):
        async for _ in source:
            pass
    assert ring.left == 0


async def test_a_loss_without_a_name_is_no_file() -> None:
    source = SharedSource(cast("SharedRing", EndlessRing()))

    batch = await source.receive()

    assert [loss.name for loss in batch.losses] == ["name"]


async def test_counters_fit_into_a_journal_whatever_the_process_counts() -> None:
    statistics = SharedSource(cast("SharedRing", EndlessRing())).statistics()

    assert max(statistics.callbacks, statistics.wakeups, statistics.unnamed) < 1 << 62
    assert LossRow("timeout", *statistics.losses["timeout"]).to_line()
    assert max(statistics.losses["timeout"]) < 1 << 62


async def test_a_source_that_is_not_woken_looks_by_itself() -> None:
    source = SharedSource(SharedRing(_SIZE))
    source.hear_nothing()

    with anyio.move_on_after(0.2) as scope:
        await source.receive()

    assert scope.cancelled_caught
    assert source._long_wait_s < 0.1


async def test_an_empty_ring_ends_at_once_when_its_process_has_left() -> None:
    async with SharedSource(SharedRing(_SIZE)) as source:
        source.producer_ended(in_order=True)
        await source.stop()

        with pytest.raises(anyio.EndOfStream):
            await source.receive()

    assert source.statistics().size == _SIZE


async def test_a_source_knows_whether_its_process_left_in_order() -> None:
    running, left, gone = (SharedSource(SharedRing(_SIZE)) for _ in range(3))
    left.producer_ended(in_order=True)
    left.producer_ended(in_order=False)  # it left, and then it ended
    gone.producer_ended(in_order=False)

    assert (running.cut_off, left.cut_off, gone.cut_off) == ("process_running", None, "process_gone")


class WaitingRing:
    """An empty ring that keeps what its reader asks to be woken for."""

    def __init__(self) -> None:
        self.distance: int | None = None

    def arm(self, distance: int, /) -> bool:
        self.distance = distance
        return False

    def disarm(self) -> None:
        self.distance = None

    def statistics(self) -> tuple[int, int, int, int, int, dict[str, tuple[int, int]]]:
        return _SIZE, 0, 0, 0, 0, {}


@pytest.mark.parametrize("happens", ["wake", "end"])
async def test_a_capture_that_waits_begins_when_its_ring_fills_or_its_process_leaves(happens: str) -> None:
    ring = WaitingRing()
    source = SharedSource(cast("SharedRing", ring))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.filling, 3600.0)
            await anyio.wait_all_tasks_blocked()
            assert ring.distance == _SIZE // 8
            if happens == "wake":
                source.wake()
            else:
                source.producer_ended(in_order=True)


async def test_a_capture_does_not_wait_for_a_process_that_has_left() -> None:
    source = SharedSource(cast("SharedRing", WaitingRing()))
    source.producer_ended(in_order=True)

    with anyio.fail_after(20):
        await source.filling(3600.0)


async def test_a_capture_waits_no_longer_than_it_was_told() -> None:
    source = SharedSource(cast("SharedRing", WaitingRing()))

    with anyio.fail_after(20):
        await source.filling(0.01)
