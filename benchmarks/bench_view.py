"""How long the page of a run of a million tensors takes, in a browser, and how fluid its map is.

The first visit reads the run and keeps what the map needs; the second is measured until the map is drawn.
SQL, the trace for Perfetto and the exported page are measured on the same run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from playwright.sync_api import sync_playwright

from figures import Figure, Floor, parse_arguments, report
from simulated import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMAND = (sys.executable, "-m", "dumpstream")
_OPERATORS, _STEPS, _QUICK_STEPS = 1000, 334, 4
_LIMIT_MS = 600_000
_MOST_S, _MOST_FRAME_MS = 1, 50
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
# Zooms in and out again, a frame at a time, and returns the median of the frames.
_ZOOM = """async () => {
    const map = document.getElementById("map");
    const { left, top } = map.getBoundingClientRect();
    const frames = [];
    for (let i = 0, last = performance.now(); i < 60; i++) {
        const where = { clientX: left + 500, clientY: top + 200, cancelable: true };
        map.dispatchEvent(new WheelEvent("wheel", { deltaY: i < 30 ? -60 : 60, ...where }));
        await new Promise(requestAnimationFrame);
        frames.push(performance.now() - last);
        last = performance.now();
    }
    return frames.sort((a, b) => a - b)[30];
}"""


class _Visit(NamedTuple):
    address_s: float  #: from the command to its address
    drawn_s: float  #: from the address to the map
    frame_ms: float
    megabytes: float  #: of the server


def _capture(out: Path, steps: int) -> None:
    workload = f"models=1,ops={_OPERATORS},steps={steps},flow=on,nan=500@2,tensor_bytes=16-64"
    workload += f",queue_bytes={64 << 20}"  # the runtime must not run ahead of the capture
    sinks = ("--sink", "zstd:", "--sink", "stats:")
    command = [*_COMMAND, "capture", "--out", str(out), "--simulate", workload, "--pack", *sinks]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


@contextmanager
def _served(run: Path) -> Iterator[tuple[str, int]]:
    """Serve the page of *run*, and yield its address and the process."""
    command = [*_COMMAND, "view", str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.terminate()


def _visit(run: Path) -> _Visit:
    start = perf_counter()
    with _served(run) as (address, pid), sync_playwright() as playwright:
        address_s = perf_counter() - start
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=[*_FLAGS]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        start = perf_counter()
        page.goto(address)
        page.wait_for_selector("body[data-ready]", timeout=_LIMIT_MS)
        drawn_s = perf_counter() - start
        frame_ms = page.evaluate(_ZOOM)
        browser.close()
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        found = re.search(r"VmHWM:\s+(\d+)", status)
        assert found is not None
        return _Visit(address_s, drawn_s, frame_ms, int(found[1]) * 1024 / 1e6)


def _seconds(*words: object) -> float:
    start = perf_counter()
    subprocess.run([*_COMMAND, *map(str, words)], stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - start


def _figure(name: str, unit: str, ours: float, baseline: float, most: float | None = None) -> Figure:
    floor = None if most is None else Floor("ours", "<=", most)
    return Figure(
        name=name,
        unit=unit,
        ours=ours,
        baseline=baseline,
        beside="first visit, or first query",
        inverse=True,
        floor=floor,
    )


def _figures(run: Path, directory: Path) -> list[Figure]:
    first, again = _visit(run), _visit(run)
    query = ("sql", run, "select count(*) from tensors")
    asked = _seconds(*query), _seconds(*query)
    trace = directory / "run.pftrace"
    traced = _seconds("export", run, "--format", "perfetto", "--out", trace)
    exported = _seconds("view", run, "--export", directory / "run.html")
    return [
        _figure("map drawn in the browser", "s", again.drawn_s, first.drawn_s, _MOST_S),
        _figure("address printed", "s", again.address_s, first.address_s),
        _figure("frame while zooming, median", "ms", again.frame_ms, first.frame_ms, _MOST_FRAME_MS),
        _figure("memory of the server", "MB", again.megabytes, first.megabytes),
        _figure("sql, count", "s", asked[1], asked[0]),
        _figure("export --format perfetto", "s", traced, first.address_s),
        _figure("view --export", "s", exported, first.address_s),
    ]


def _main() -> None:
    args = parse_arguments(__doc__)
    with scratch() as directory, tempfile.TemporaryDirectory(dir=directory) as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        run = directory / "run"
        _capture(run, _QUICK_STEPS if args.quick else _STEPS)
        figures = _figures(run, directory)
    report(args, figures)


if __name__ == "__main__":
    _main()
