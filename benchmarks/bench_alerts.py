"""How long after its file an alert is told.

A simulated job of thousands of small tensors a second makes a NaN in the middle of its run, which spreads to
what follows. The clock runs from the moment at which a consumer of the capture gets the file with the NaN
until a consumer of the alerts has the first alert; zero if the alert comes first, because a sink is slower.
The baseline is the promise, two seconds.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from dumpstream import open_capture
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library
from figures import Arguments, Figure, Floor, parse_arguments, report
from simulated import scratch

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream import Capture

_WORKLOAD = "flow=on,models=1,ops=16,tensor_bytes=4096,dtypes=float32,op_types=MatMulV2+Relu+Add+LayerNorm"
_STEPS, _ROUNDS, _PROMISE = 400, 5, 2.0


async def _seconds(directory: Path, sink: str, workload: Workload, library: str) -> float:
    """Return how long after its file the first alert came."""
    finished: dict[str, float] = {}
    told: list[tuple[str, float]] = []

    async def note_files(capture: Capture) -> None:
        async for file in capture.files(max_bytes=0):
            finished[file.name] = perf_counter()

    async def note_alerts(capture: Capture) -> None:
        told.extend([(alert.file, perf_counter()) async for alert in capture.alerts()])

    with SimulatedRuntime(workload) as runtime:
        opening = open_capture(
            directory / "run",
            config=directory / "acl.json",
            acl_library=library,
            sinks=[sink],
            alert=True,
            own_process=False,
        )
        async with anyio.create_task_group() as tasks, opening as capture:
            tasks.start_soon(note_files, capture)
            tasks.start_soon(note_alerts, capture)
            await anyio.to_thread.run_sync(runtime.run, workload.steps)
    file, moment = told[0]
    return max(moment - finished[file], 0.0)


def _run(arguments: Arguments) -> None:
    library = str(simulated_library())
    steps = 40 if arguments.quick else _STEPS
    workload = Workload.parse(f"{_WORKLOAD},steps={steps},nan=4@{steps // 2}")
    figures = []
    for sink in ("stats:", "zstd:"):
        taken = []
        for _ in range(1 if arguments.quick else _ROUNDS):
            with scratch() as directory:
                (directory / "npu").mkdir()
                (directory / "acl.json").write_text(dump_config(directory / "npu"))
                taken.append(anyio.run(_seconds, directory, sink, workload, library))
        floor = Floor("ours", "<=", _PROMISE)
        for what, value in (("median", median(taken)), ("longest", max(taken))):
            name = f"from the file to its alert, --sink {sink}, {what} of {len(taken)}"
            figures.append(
                Figure(name=name, unit="s", ours=value, baseline=_PROMISE, beside="promised", floor=floor)
            )
    report(arguments, figures)


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
