"""A consumer that computes a statistic of its own of every file, and stores nothing.

Prints the share of elements that are exactly zero, for every tensor, and at the end the sparsest ones. It
trains on the simulated runtime, so it runs anywhere: `python examples/own_statistic.py`. With CANN, leave out
`acl_library`, and run your own steps in place of `runtime.run`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dumpstream import DumpFile, DumpFormatError, open_capture
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

if TYPE_CHECKING:
    from dumpstream import Capture

_SHOWN = 5

#: The share of zeros, the operator, and the tensor.
Sparsity = tuple[float, str, str]


def zeros_of(data: bytes) -> list[Sparsity]:
    """Return the share of zeros in each tensor of a dump file that is in memory."""
    try:
        with DumpFile.open(data) as dump:
            return [
                (
                    1 - np.count_nonzero(array := dump.array(tensor)) / max(array.size, 1),
                    dump.op_name,
                    f"{tensor.io} {tensor.index}",
                )
                for tensor in dump.tensors
            ]
    except DumpFormatError:
        return []  # text, or a file that is not whole


async def measure(capture: Capture) -> list[Sparsity]:
    """Measure every file that finishes, until the capture ends."""
    found = []
    async for file in capture.files():
        if file.verdict.whole:
            # In a thread: the event loop has to read the ring.
            for sparsity in await asyncio.to_thread(zeros_of, await file.read()):
                print("{:7.2%} zeros in {} {}".format(*sparsity))
                found.append(sparsity)
        else:
            print(f"{file.name} is not whole ({file.verdict}), and is left out", file=sys.stderr)
    return found


def write_config(directory: str) -> Path:
    """Return an acl.json that dumps everything."""
    config = Path(directory, "acl.json")
    config.write_text(dump_config(directory))
    return config


async def main() -> None:
    """Run some steps, and measure what they dump."""
    with tempfile.TemporaryDirectory() as dump_path, SimulatedRuntime(Workload(steps=3)) as runtime:
        config = write_config(dump_path)
        async with open_capture(None, config=config, acl_library=simulated_library()) as capture:
            measuring = asyncio.create_task(measure(capture))
            await asyncio.sleep(0)  # it asks for files before the first one comes
            await asyncio.to_thread(runtime.run)
        found = await measuring  # ends with the capture, and raises what ended it
    print(f"{capture.report.files} files, {capture.report.skipped_files} skipped; the sparsest tensors:")
    for sparsity in sorted(found, reverse=True)[:_SHOWN]:
        print("{:7.2%} {} {}".format(*sparsity))


if __name__ == "__main__":
    asyncio.run(main())
