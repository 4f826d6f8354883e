"""Watch: a run that may still grow, read again when it has changed, for several pages at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, Any, TypeVar

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.reading.stored import State
from dumpstream.system.cache import open_cached
from dumpstream.system.location import Prefix
from dumpstream.view.against import Against, compare_rows, version_beside
from dumpstream.view.details import Details, Said
from dumpstream.view.packing import pack, unpack
from dumpstream.view.rates import Rates
from dumpstream.view.snapshot import Snapshot
from dumpstream.view.status import status_of

#: Changes when the same run would be packed otherwise.
_FORMAT = "view 3"
_LOOK_S, _LOOK_AT_STORE_S = 1.0, 5.0
_TELL_S = 0.5  #: how often a page hears of work that goes on
#: Reading again may take this share of the time, so that a large run does not keep a core busy.
_SHARE = 0.25
#: A run without statistics that is larger than this is measured when a page asks for it.
_ASK_BYTES = 64 << 20

Told = Callable[[int, int], None]
_Result = TypeVar("_Result")


class Watch:
    """What pages show of the run at *path*, perhaps *against* another one.

    `follow` sees how the run gets on, and `work` reads what the pages want to know, the map first. What they
    show of a finished capture is kept in the cache, so that the second page is there at once.
    """

    def __init__(
        self, path: Path | Prefix, ranks: Sequence[int] = (), *, against: Path | Prefix | None = None
    ) -> None:
        self._path, self._ranks, self._other = path, tuple(ranks), against
        self.status: dict[str, Any] = status_of(path, ranks)
        self._other_version = "" if against is None else version_beside(path, against)
        self._rates = Rates()
        self._shown = ""
        self._snapshot = Snapshot(path, ranks)
        self._said: Said | None = None
        self._is_judged = False  # whether what was said is about the run as it is shown
        self._against: Against | None = None
        self._packed = b""
        self._doing: dict[str, Any] | None = None
        self._problem: str | None = None
        self._changed = anyio.Event()
        self.shown = anyio.Event()  #: is set when a page has drawn the run
        self.asked = anyio.Event()  #: is set when a page has asked for statistics

    @property
    def told(self) -> dict[str, Any]:
        """The status as pages are told it: its version is that of what they can ask for."""
        said = self._said or Said()
        told = {**self.status, "version": self._shown, "sentence": said.sentence, "origin": said.origin}
        if self._doing is not None:
            told["doing"] = dict(self._doing)
        if self._problem is not None:
            told.setdefault("problem", self._problem)
        if self.offers and not self.asked.is_set():
            told["offer"] = {"files": self.status["files"], "bytes": self.status["bytes"]}
        if self._other is not None:
            told["against"] = self._told_against()
        return told

    @property
    def offers(self) -> bool:
        """Whether the run has to be measured first, which takes so long that a person should ask for it."""
        measured = self.status.get("measured", True)
        return not self._packed and not measured and self.status["bytes"] > _ASK_BYTES

    @property
    def version(self) -> str:
        """The version of what a page draws now."""
        return self._shown

    @property
    def packed(self) -> bytes:
        """What a page draws now; nothing if the run was not read yet."""
        return self._packed

    def open(self, progress: Told = lambda *_: None) -> None:
        """Read the run for the first time, unless that is offered; raises `DumpstreamError`."""
        if not self.offers:
            self._draw(self.status, progress)

    async def details(self) -> Details:
        """Return what is known of single tensors; the first of several callers reads the run, if need be."""
        return await _in_thread(self._snapshot.details)

    def against_of(self, row: int) -> dict[str, Any] | None:
        """Return how one tensor differs from the other run's; None if that is not known."""
        found = self._against
        return None if found is None or not 0 <= row < len(found.columns["verdict"]) else found.of(row)

    @property
    def packed_against(self) -> bytes:
        """What a page draws of the comparison; nothing if there is none, or not yet."""
        if self._against is None:
            return b""
        return pack({"version": self._shown}, self._against.drawn(unpack(self._packed)[1]["row"]))

    async def changed(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Return the status as soon as it is another one than *seen*."""
        while (told := self.told) == seen:
            with anyio.move_on_after(_TELL_S):
                await self._changed.wait()
        return told

    async def follow(self) -> None:
        """Look again and again how the run gets on, for ever."""
        while True:
            await anyio.sleep(_LOOK_AT_STORE_S if isinstance(self._path, Prefix) else _LOOK_S)
            try:
                status = await _in_thread(status_of, self._path, self._ranks)
                self._rates.note(status)
            except (DumpstreamError, OSError) as exc:
                status = {**self.status, "problem": str(exc)}
            if status != self.status:
                self.status = status
                self._tell()

    async def work(self) -> None:
        """Read what pages want to know, again whenever the run has changed, for ever."""
        await self.shown.wait()  # the page is to be there at once
        if self.offers:
            await self.asked.wait()
        while True:
            started = monotonic()
            try:
                await self._work()
                self._problem = None
            except (DumpstreamError, OSError) as exc:
                self._problem = str(exc)
            self._tell()
            await anyio.sleep((monotonic() - started) / _SHARE if self._is_growing else _LOOK_S)

    @property
    def _is_growing(self) -> bool:
        return bool(self.status["state"] == State.RUNNING)

    async def _work(self) -> None:
        status = self.status
        if "problem" in status:
            return
        if status["version"] != self._shown or not self._packed:
            with self._working("reading the run", status["bytes"]) as told:
                await _in_thread(self._draw, status, lambda _, size: told(size))
            # The sentence stays until there is another one, but its row has another number now.
            self._said = None if self._said is None else self._said._replace(origin=None)
            self._against, self._is_judged = None, False
            self._tell()
        if not self._is_judged:
            with self._working("looking for the first bad value"):
                self._said = await _in_thread(self._find_said)
            self._is_judged = True
            self._tell()
        if self._other is not None and self._against is None:
            with self._working("comparing", len(unpack(self._packed)[1]["row"])) as told:
                self._against = await _in_thread(self._find_against, lambda tensors, _: told(tensors))
            self._tell()
        await self.details()

    @contextmanager
    def _working(self, what: str, of: int = 0) -> Iterator[Callable[[int], None]]:
        """Let pages see what is done, and how far it is, while the block runs."""
        doing = {"what": what, "done": 0, "of": of}
        # What is done again every few seconds is not worth a line that comes and goes.
        self._doing = None if self._is_growing and self._said is not None else doing
        try:
            yield partial(doing.__setitem__, "done")
        finally:
            self._doing = None

    def _draw(self, status: dict[str, Any], progress: Told) -> None:
        """Read what the map shows, or take it from the cache."""
        snapshot = Snapshot(self._path, self._ranks)
        version = status["version"]

        def packed() -> bytes:
            return snapshot.scene(progress).packed({**status, "members": []})

        finished = version and status["state"] != State.RUNNING
        drawn = self._kept("map", version, packed) if finished else packed()
        self._packed, self._snapshot, self._shown = drawn, snapshot, version

    def _find_said(self) -> Said:
        snapshot, version = self._snapshot, self._shown

        def found() -> bytes:
            return json.dumps(snapshot.details().said()).encode()

        keeps = version and not self._is_growing
        return Said(*json.loads(self._kept("sentence", version, found) if keeps else found()))

    def _find_against(self, told: Told) -> Against:
        snapshot, other = self._snapshot, self._other
        version = f"{self._shown} {self._other_version}"
        assert other is not None

        def found() -> bytes:
            trace = snapshot.scene().subject.trace
            return compare_rows(self._path, other, trace, self._ranks, told=told).to_bytes()

        keeps = self._shown and self._other_version and not self._is_growing
        return Against.from_bytes(self._kept(f"against {other}", version, found) if keeps else found())

    def _kept(self, what: str, version: str, make: Callable[[], bytes]) -> bytes:
        """Return what *make* returns, from the cache if that has it."""

        def write(file: IO[bytes]) -> None:
            file.write(make())

        name = f"{_FORMAT} {what} {self._path} {sorted(self._ranks)}"
        with os.fdopen(open_cached(name, version, write), "rb") as file:
            file.seek(0)  # the descriptor of a temporary file is where writing ended
            return file.read()

    def _told_against(self) -> dict[str, Any]:
        found = self._against
        return {"run": str(self._other)} if found is None else found.told(self._shown)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def _in_thread(do: Callable[..., _Result], *arguments: Any) -> _Result:
    return await run_sync(do, *arguments, abandon_on_cancel=True)
