"""A destination to capture to, from the simulated runtime or from chunks of the test's own."""

from __future__ import annotations

import ctypes
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, StoredCapture, Verdict, _native, open_capture
from dumpstream.archive.rows import JOURNAL, EndRow, FileRow, read_journal
from dumpstream.reading.verification import Verification, verify
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from dumpstream import Capture, Report

_RING_BYTES = 4 << 20  # a ring is populated before it is used, and the default one takes a while


class Read(NamedTuple):
    """A file as the capture gives it back."""

    verdict: Verdict
    data: bytes


class Rig:
    """Opens captures into one directory, feeds them, and reads back what they left."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "capture"
        self.dump_path = directory / "dump"
        self.dump_path.mkdir()
        self.config = directory / "acl.json"
        self.config.write_text(dump_config(self.dump_path))
        self.library = simulated_library()

    def simulated(self, **options: Any) -> AbstractAsyncContextManager[Capture]:
        """Capture what the simulated runtime dumps."""
        options = {"buffer_bytes": _RING_BYTES} | options
        return open_capture(self.path, config=self.config, acl_library=self.library, **options)

    def pushed(self, ring: RingOptions | None = None, **options: Any) -> AbstractAsyncContextManager[Capture]:
        """Capture what the test pushes."""
        source = RingSource(ring or RingOptions(buffer_bytes=_RING_BYTES))
        return open_capture(self.path, source=source, **options)

    @asynccontextmanager
    async def raising(
        self, error: type[Exception], match: str, capture: AbstractAsyncContextManager[Capture]
    ) -> AsyncIterator[Capture]:
        """Enter *capture*, and expect *error* when it is left."""
        with pytest.raises(error, match=match):
            async with capture as entered:
                yield entered

    async def run(self, workload: Workload, **options: Any) -> Report:
        """Capture a whole run of *workload*."""
        with SimulatedRuntime(workload) as runtime:
            async with self.simulated(**options) as capture:
                await run_sync(runtime.run)
        return capture.report

    def push(self, name: str, data: bytes = b"", *, last: bool = False, offset: int = -1) -> int:
        """Do what the callback does for one chunk; nonzero if it was refused."""
        buffer = ctypes.create_string_buffer(data, len(data) or 1)
        return _native.push(os.fsencode(name), ctypes.addressof(buffer), len(data), last, offset, 0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that has no event of its own."""
        with anyio.fail_after(20):
            while not condition():  # noqa: ASYNC110 - as it says
                await anyio.sleep(0.002)

    def read(self) -> dict[str, Read]:
        """Return what the capture has, by name."""
        stored = StoredCapture.open(self.path)
        return {
            file.name: Read(
                file.verdict,
                b"".join(bytes(block) for part in file.parts for block in stored.read_part(part)),
            )
            for file in stored.files
        }

    def rows(self) -> dict[str, list[FileRow]]:
        """Return the journal's rows of every file, by name."""
        return {file.name: list(file.rows) for file in StoredCapture.open(self.path).files}

    def ends(self) -> list[EndRow]:
        """Return the last row of every run."""
        return [row for row in read_journal(self.path / JOURNAL) if isinstance(row, EndRow)]

    def verify(self) -> Verification:
        """Read everything again."""
        return verify(StoredCapture.open(self.path))


class ApartRig(Rig):
    """Opens captures that are stored as `open_capture` chooses: by a companion, if one can."""

    def pushed(self, ring: RingOptions | None = None, **options: Any) -> AbstractAsyncContextManager[Capture]:
        """Capture what the test pushes."""
        options = {"buffer_bytes": _RING_BYTES} | options
        return open_capture(self.path, acl_library=self.library, **options)


@pytest.fixture(params=[Rig, ApartRig], ids=["in process", "apart"])
def either_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Return a rig whose captures are stored in this process, and then one whose companion stores them."""
    library = SimulatedRuntime().library
    library.dssim_reset()
    yield request.param(tmp_path)
    library.dssim_reset()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    library = SimulatedRuntime().library
    library.dssim_reset()
    yield Rig(tmp_path)
    library.dssim_reset()
