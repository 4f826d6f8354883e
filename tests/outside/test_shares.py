from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import RingError
from dumpstream._native import SharedRing
from dumpstream.outside.shares import LEAST_SHARE, Share, Shares

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

_MIB = 1 << 20


async def take(shares: Shares, count: int, local_size: int | None = None) -> list[Share]:
    return [await shares.take(local_size, f"{number}.ring") for number in range(count)]


async def give_back(shares: list[Share]) -> None:
    for share in shares:
        await share.aclose()


async def test_processes_that_are_counted_get_equal_shares_while_as_much_is_left() -> None:
    shares = Shares(48 * _MIB, None)

    taken = await take(shares, 6, local_size=6)

    assert [share.size // _MIB for share in taken] == [8, 8, 8, 8, 8, 4]
    await give_back(taken)


async def test_a_job_leaves_something_to_another_one_beside_it() -> None:
    shares = Shares(256 * _MIB, None)
    first = await take(shares, 4, local_size=4)

    second = await take(shares, 4, local_size=4)

    assert [share.size // _MIB for share in first + second] == [64, 64, 64, 32, 16, 8, 4, 4]
    await give_back(first + second)


async def test_processes_that_the_launcher_does_not_count_get_an_eighth_of_what_is_free() -> None:
    shares = Shares(128 * _MIB, None)

    taken = await take(shares, 4)

    assert [share.size for share in taken] == [16 * _MIB, 8 * _MIB, 8 * _MIB, 8 * _MIB]
    await give_back(taken)


@pytest.mark.parametrize("local_size", [None, 64])
async def test_no_share_is_less_than_the_least(local_size: int | None) -> None:
    shares = Shares(2 * LEAST_SHARE, None)

    taken = await take(shares, 2, local_size)

    assert [share.size for share in taken] == [LEAST_SHARE] * 2
    await give_back(taken)


async def test_beyond_the_total_there_is_none_until_one_is_given_back() -> None:
    shares = Shares(LEAST_SHARE + LEAST_SHARE // 2, None)
    (first,) = await take(shares, 1)

    with pytest.raises(RingError, match="give the collector more --buffer-bytes"):
        await shares.take(None, "refused.ring")
    await first.aclose()

    await give_back(await take(shares, 1))
    assert shares.free == LEAST_SHARE + LEAST_SHARE // 2


async def test_the_spare_is_handed_out_to_who_asks_for_its_size_only() -> None:
    shares = Shares(64 * _MIB, None)
    await shares.make_spare()
    assert shares._spare is not None
    spare = shares._spare.ring

    other = await shares.take(4, "other.ring")
    assert shares._spare.ring is spare
    match = await shares.take(8, "match.ring")

    assert (other.size, match.size) == (16 * _MIB, 8 * _MIB)
    assert match.ring is spare
    assert shares._spare is None
    await give_back([other, match])
    await shares.aclose()


async def test_the_first_spare_has_the_size_that_the_launcher_lets_expect() -> None:
    shares = Shares(64 * _MIB, None, local_size=1)
    await shares.make_spare()
    assert shares._spare is not None
    spare = shares._spare.ring

    (only,) = await take(shares, 1, local_size=1)

    assert only.ring is spare
    await give_back([only])
    await shares.aclose()


async def test_no_spare_is_made_once_all_processes_of_the_job_have_their_rings() -> None:
    shares = Shares(64 * _MIB, None)
    taken = await take(shares, 2, local_size=2)

    await shares.make_spare()
    assert shares._spare is None
    await give_back(taken[:1])
    await shares.make_spare()

    assert shares._spare is not None
    await give_back(taken[1:])
    await shares.aclose()


async def test_a_spare_that_is_ready_too_late_is_not_taken_for_one_of_another_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares, may_go_on = Shares(64 * _MIB, None), threading.Event()

    def make(size: int, file: Path | None) -> SharedRing:
        if size == 8 * _MIB:
            assert may_go_on.wait(20)
        assert file is None
        return SharedRing(size)

    monkeypatch.setattr("dumpstream.outside.shares._make", make)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shares.make_spare)
        await anyio.wait_all_tasks_blocked()
        first = await shares.take(4, "first.ring")
        other = await shares.take(None, "other.ring")
        await shares.make_spare()
        may_go_on.set()

    last = await shares.take(None, "last.ring")

    assert [share.ring.statistics()[0] for share in (first, other, last)] == [
        share.size for share in (first, other, last)
    ]
    await give_back([first, other, last])
    await shares.aclose()


async def test_a_process_that_comes_while_the_spare_is_made_waits_for_it_and_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares, may_go_on, made = Shares(64 * _MIB, None, local_size=1), threading.Event(), []

    def make(size: int, _: Path | None) -> SharedRing:
        assert may_go_on.wait(20)
        made.append(SharedRing(size))
        return made[-1]

    monkeypatch.setattr("dumpstream.outside.shares._make", make)
    taken = []

    async def take_one() -> None:
        taken.append(await shares.take(1, "only.ring"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shares.make_spare)
        tasks.start_soon(take_one)
        await anyio.wait_all_tasks_blocked()
        may_go_on.set()

    assert [share.ring for share in taken] == made
    await give_back(taken)


async def test_a_spare_for_which_a_cancelled_process_waited_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares, may_go_on, made = Shares(64 * _MIB, None, local_size=1), threading.Event(), []

    def make(size: int, _: Path | None) -> SharedRing:
        assert may_go_on.wait(20)
        made.append(SharedRing(size))
        return made[-1]

    monkeypatch.setattr("dumpstream.outside.shares._make", make)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shares.make_spare)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(shares.take, 1, "only.ring")
            await anyio.wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        may_go_on.set()

    with pytest.raises(ValueError, match="closed"):
        made[0].statistics()


async def test_a_ring_in_a_file_has_it_until_it_is_given_back(tmp_path: Path) -> None:
    shares = Shares(16 * _MIB, tmp_path / "rings")
    await shares.make_spare()

    share = await shares.take(None, "mine.ring")

    assert share.file == tmp_path / "rings" / "mine.ring"
    assert (await run_sync(share.file.stat)).st_size > LEAST_SHARE
    await share.aclose()
    assert not await run_sync(share.file.exists)


async def test_a_place_without_room_for_files_is_named(tmp_path: Path) -> None:
    await run_sync((tmp_path / "file").write_text, "")
    shares = Shares(16 * _MIB, tmp_path / "file")

    with pytest.raises(RingError, match=r"cannot be made in .*mine\.ring"):
        await shares.take(None, "mine.ring")

    assert shares.free == 16 * _MIB


async def test_what_a_process_put_in_the_place_of_its_ring_is_left_alone(tmp_path: Path) -> None:
    shares = Shares(16 * _MIB, tmp_path)
    share = await shares.take(None, "mine.ring")
    assert share.file is not None
    await run_sync(share.file.unlink)
    await run_sync(share.file.mkdir)

    await share.aclose()

    assert shares.free == 16 * _MIB
