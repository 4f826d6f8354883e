from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.system.heldbytes import HeldBytes, _Space

if TYPE_CHECKING:
    import io
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[HeldBytes]:
    held = HeldBytes(tmp_path, memory_bytes=100)
    yield held
    await held.aclose()


def temporary_file(held: HeldBytes) -> os.stat_result:
    assert held._file._file is not None
    return os.fstat(held._file._file.fileno())


async def test_bytes_come_back_from_memory_and_file(held: HeldBytes) -> None:
    await held.keep("memory", b"m" * 100)
    await held.keep("file", memoryview(b"f" * 1000))

    taken = [bytes(await held.take(key)) for key in ("file", "memory")]

    assert taken == [b"f" * 1000, b"m" * 100]


async def test_kept_bytes_are_a_copy(held: HeldBytes) -> None:
    small, large = bytearray(b"small"), bytearray(b"large" * 100)
    await held.keep("small", small)
    await held.keep("large", large)

    small[:] = bytes(len(small))
    large[:] = bytes(len(large))

    assert bytes(await held.take("small")) == b"small"
    assert bytes(await held.take("large")) == b"large" * 100


async def test_taken_bytes_are_kept_no_longer(held: HeldBytes) -> None:
    await held.keep("key", b"data")
    await held.take("key")

    with pytest.raises(KeyError):
        await held.take("key")


async def test_no_file_is_made_while_memory_suffices(held: HeldBytes) -> None:
    for _ in range(10):
        await held.keep("key", bytes(100))
        await held.take("key")

    assert held._file._file is None


async def test_temporary_file_has_no_name_and_is_private(held: HeldBytes, tmp_path: Path) -> None:
    await held.keep("key", bytes(1000))

    status = temporary_file(held)

    assert not await anyio.to_thread.run_sync(os.listdir, tmp_path)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_nlink == 0


async def test_space_is_used_again_while_other_bytes_stay(held: HeldBytes) -> None:
    await held.keep("stays", bytes(1000))
    for _ in range(10):
        await held.keep("comes and goes", bytes(500))
        await held.take("comes and goes")

    assert temporary_file(held).st_size == 1500


async def test_file_is_emptied_with_the_last_bytes_in_it(held: HeldBytes) -> None:
    await held.keep("one", bytes(1000))
    await held.keep("two", bytes(1000))
    await held.take("one")
    await held.take("two")

    assert temporary_file(held).st_size == 0


async def test_directory_that_cannot_take_the_file_is_an_error(tmp_path: Path) -> None:
    held = HeldBytes(tmp_path / "missing", memory_bytes=0)

    with pytest.raises(FileNotFoundError):
        await held.keep("key", b"data")

    with pytest.raises(KeyError):
        await held.take("key")


async def test_full_disk_is_an_error_that_costs_no_space(held: HeldBytes) -> None:
    await held.keep("before", bytes(1000))
    file, full = held._file._file, await anyio.to_thread.run_sync(_open_full)
    held._file._file = full

    with pytest.raises(OSError, match="No space left"):
        await held.keep("key", bytes(2000))

    held._file._file = file
    await anyio.to_thread.run_sync(full.close)
    await held.keep("after", bytes(1000))
    assert temporary_file(held).st_size == 2000


def _open_full() -> io.FileIO:
    return Path("/dev/full").open("r+b", buffering=0)


async def test_closing_while_cancelled_closes_the_file(held: HeldBytes) -> None:
    await held.keep("key", bytes(1000))
    file = held._file._file
    assert file is not None

    with anyio.CancelScope() as scope:
        scope.cancel()
        await held.aclose()

    assert file.closed


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 50) | st.integers(-8, -1), max_size=60))
def test_space_in_use_never_overlaps_and_no_hole_is_forgotten(steps: list[int]) -> None:
    space = _Space()
    in_use: list[tuple[int, int]] = []

    for step in steps:
        if step > 0:
            in_use.append((space.take(step), step))
        elif in_use:
            space.give_back(*in_use.pop(step % len(in_use)))

        ranges = sorted((start, start + length) for start, length in in_use)
        edges = [0, *(edge for both in ranges for edge in both)]
        holes = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False) if start < end]
        assert edges == sorted(edges)
        assert sorted(space._starts.items()) == holes
        assert sorted((start, end) for end, start in space._ends.items()) == holes
        assert space._lengths == sorted((end - start, start) for start, end in holes)
        assert space._end == edges[-1]
