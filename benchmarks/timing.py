"""Timing: how long a capture takes."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Unpack

import anyio
from anyio.to_thread import run_sync

from dumpstream import CaptureOptions, RingOptions, RingSource, Verdict, open_capture
from producer import produce, ring_callback

if TYPE_CHECKING:
    from pathlib import Path

    from producer import Chunks


async def time_capture(
    directory: Path,
    chunks: Chunks,
    files: int,
    *,
    sink: str,
    ring: RingOptions,
    alert: bool = False,
    **options: Unpack[CaptureOptions],
) -> float:
    """Capture *files* into *directory*; return the seconds from the first call to the last journal line.

    Raises:
        RuntimeError: not every file is complete.
    """
    target = ring_callback()
    start = end = perf_counter()
    async with (
        anyio.create_task_group() as tasks,
        open_capture(directory, source=RingSource(ring), sinks=[sink], alert=alert, **options) as capture,
    ):

        async def note_end() -> None:
            nonlocal end
            await capture.wait()
            end = perf_counter()

        tasks.start_soon(note_end)
        start = perf_counter()
        await run_sync(produce, target, chunks, files * chunks.per_file)
    if capture.report.verdicts != {Verdict.COMPLETE: files}:
        raise RuntimeError(f"{files} files were sent, but the verdicts are {capture.report.verdicts}")
    return end - start
