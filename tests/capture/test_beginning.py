"""The steps by which a capture begins, each in a thread, and what is left if one of them is cancelled."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import obstore
import pytest
from anyio._backends._asyncio import AsyncIOBackend
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream import RingOptions, RingSource, open_capture, open_collector
from dumpstream.archive.manifest import MANIFEST, read_manifest
from dumpstream.archive.rows import JOURNAL, BeginRow, EndRow, read_journal
from dumpstream.objectstore import patience
from dumpstream.profiling.settings import ProfileSettings
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.system.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.capture.conftest import Rig

pytestmark = pytest.mark.anyio

_BUFFER_BYTES = 4 << 20
_INITIALISED = 100002


def name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__name__)).partition(".<locals>")[0]


class Steps:
    """Notes every call that goes to a thread, and calls *at_step* with its number, while it is watching."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.at_step: Callable[[int], None] = lambda _: None
        self._watching = False
        original = AsyncIOBackend.run_sync_in_worker_thread

        async def run(function: Any, *args: Any, **options: Any) -> Any:
            self._note(function)
            return await original(function, *args, **options)

        def make_thread(target: Any, **options: Any) -> Thread:
            self._note(target)
            return Thread(target=target, **options)

        monkeypatch.setattr(AsyncIOBackend, "run_sync_in_worker_thread", staticmethod(run))
        monkeypatch.setattr(patience, "Thread", make_thread)

    @asynccontextmanager
    async def watched(self, context: AbstractAsyncContextManager[Any]) -> AsyncIterator[None]:
        """Enter *context*, watched, and leave it without."""
        self.names, self._watching = [], True
        try:
            async with context:
                self._watching = False
                yield
        finally:
            self._watching = False

    def _note(self, function: Any) -> None:
        if self._watching:
            self.names.append(name_of(function))
            self.at_step(len(self.names) - 1)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where captures in stores keep their local part."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dumpstream"


async def cancel_each_step(
    steps: Steps, make: Callable[[], AbstractAsyncContextManager[Any]], check: Callable[[str], list[str]]
) -> list[str]:
    """Begin again and again, each time cancelled at the next step; return what *check* finds, by step."""

    async def work() -> None:
        async with steps.watched(make()):
            pass

    problems: list[str] = []
    for step in itertools.count():
        task = asyncio.ensure_future(work())
        steps.at_step = lambda number, step=step, task=task: task.cancel() if number == step else None  # type: ignore[misc]
        with suppress(asyncio.CancelledError):
            await task
        if len(steps.names) <= step:
            return problems
        name = steps.names[step]
        problems += [f"{step} {name}: {problem}" for problem in await run_sync(check, name)]
    raise AssertionError


async def test_what_may_refuse_is_prepared_before_what_lasts_begins(rig: Rig, steps: Steps) -> None:
    with SimulatedRuntime(Workload(steps=1)):
        async with steps.watched(rig.simulated(profile=ProfileSettings())):
            pass

    expected = [
        "load_asked",
        "make_outbox",
        "Destination.open",
        "find_factory",
        "load_dump",
        "_load_profiler",
        "Dump.begin",
        "Destination.make_profile",
        "ManifestWriter.begin_run",
    ]
    assert [name for name in steps.names if name in expected] == expected


async def test_cancelled_at_any_step_it_leaves_no_trace_or_a_run_that_has_ended(
    rig: Rig, steps: Steps
) -> None:
    def check(_: str) -> list[str]:
        found = []
        if runtime.library.aclmdlInitDump() == _INITIALISED:
            found.append("the dump goes on")
        runtime.library.aclmdlFinalizeDump()
        if rig.path.exists():
            rows = list(read_journal(rig.path / JOURNAL))
            begun, ended = (sum(isinstance(row, kind) for row in rows) for kind in (BeginRow, EndRow))
            outcomes = [run.outcome for run in read_manifest(rig.path).runs]
            if lock_holder(rig.path) is not None or not begun == ended == len(outcomes) or None in outcomes:
                found.append(f"{begun} begun, {ended} ended, {outcomes}")
            rig.path = rig.path.with_name(f"{rig.path.name}x")
        return found

    with SimulatedRuntime(Workload(steps=1)) as runtime:
        problems = await cancel_each_step(steps, lambda: rig.simulated(profile=ProfileSettings()), check)

    assert problems == []
    assert "ManifestWriter.begin_run" in steps.names


async def test_cancelled_before_the_run_begins_force_has_deleted_nothing(rig: Rig, steps: Steps) -> None:
    def make() -> AbstractAsyncContextManager[Any]:
        return rig.pushed(RingOptions(buffer_bytes=_BUFFER_BYTES), force=True)

    def check(name: str) -> list[str]:
        if "ManifestWriter.begin_run" in steps.names:
            return []
        return [] if rig.read()["file"].data == b"data" else [f"{name} has deleted the earlier capture"]

    async with rig.pushed():
        rig.push("file", b"data", last=True)

    assert await cancel_each_step(steps, make, check) == []
    assert await run_sync(rig.read) == {}


async def test_cancelled_at_any_step_a_store_has_no_trace_or_a_run_that_has_ended(
    state: Path, steps: Steps
) -> None:
    store = MemoryStore()

    def make() -> AbstractAsyncContextManager[Any]:
        return open_capture(store, source=RingSource(RingOptions(buffer_bytes=_BUFFER_BYTES)))

    def check(_: str) -> list[str]:
        keys = {meta["path"] for page in obstore.list(store) for meta in page}
        found = ["the lock is left"] if "lock.json" in keys else []
        if state.exists() and any(state.iterdir()):
            found.append("the outbox is left")
        if MANIFEST in keys:
            runs = json.loads(bytes(obstore.get(store, MANIFEST).bytes()))["runs"]
            found += [f"a run has no end: {run}" for run in runs if run["outcome"] is None]
            keys.add("journal.jsonl")
        elif keys:
            found.append(f"there are {keys}")
        for key in keys:
            with suppress(FileNotFoundError):
                obstore.delete(store, key)
        return found

    assert await cancel_each_step(steps, make, check) == []


async def test_a_collector_cancelled_at_any_step_leaves_no_trace_or_a_list_of_processes(
    tmp_path: Path, steps: Steps
) -> None:
    out, socket = tmp_path / "out", tmp_path / "socket"

    def make() -> AbstractAsyncContextManager[Any]:
        return open_collector(out, socket_path=socket, buffer_bytes=_BUFFER_BYTES, append=True)

    def check(_: str) -> list[str]:
        found = ["the socket is left"] if socket.exists() else []
        if out.exists() and (lock_holder(out) is not None or not (out / MANIFEST).exists()):
            found.append("the directory is left")
        return found

    assert await cancel_each_step(steps, make, check) == []
    assert "ManifestWriter.begin_processes" in steps.names
    await anyio.lowlevel.checkpoint()
