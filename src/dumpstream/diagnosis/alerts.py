"""Alerts: the first bad tensor of a capture, told while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Self

from anyio import move_on_after
from anyio.to_thread import run_sync

from dumpstream._errors import PartError
from dumpstream.diagnosis.badness import DEFAULT, Badness
from dumpstream.diagnosis.blame import Blame
from dumpstream.diagnosis.dataflow.trace import COLUMNS, trace_of
from dumpstream.diagnosis.evidence import gather
from dumpstream.diagnosis.origins import find_origins, find_spread
from dumpstream.diagnosis.report import OriginReport, report_origin
from dumpstream.stages.feed import Files
from dumpstream.stages.finished import FinishedFile
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.table import TensorRow
from dumpstream.statistics.tensors import TensorRows

#: How many rows are kept, to judge what comes next by.
_ROWS = 8192
#: The shortest time between two judgements, and the share of the time that they may take.
_PAUSE_S, _SHARE = 0.5, 0.02


@dataclass(frozen=True, slots=True)
class Alert:
    """Something bad in a capture, as far as it can be judged by what had come until then."""

    file: str  #: that has the bad tensor
    origin: OriginReport

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        it = self.origin
        where = f"{it.op_name or '?'} ({it.op_type or '?'}), {it.io} {it.index}"
        step = "" if it.step is None else f"step {it.step}, "
        return f"{it.kind} in {step}{where}: {it.blame}: {it.reason}"


class Alerts:
    """The origins of bad values in a capture as they are found, each once: an async iterator.

    An origin is told again if it is judged differently by what came later. Takes the rows of the statistics
    sink; without one it measures the files that fit in memory.
    """

    def __init__(self, files: Files, look_for: Sequence[Badness] = DEFAULT) -> None:
        self._files, self._look_for = files, look_for
        self._rows: deque[TensorRow] = deque(maxlen=_ROWS)
        self._waiting: deque[Alert] = deque()
        self._told: dict[tuple[object, ...], Blame] = {}
        self._is_bad = False
        self._pending = False  # rows have come that may change a judgement
        self._ended = False
        self._next = 0.0  # when to judge again

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Alert:
        """Return the next alert; raises what ended the capture."""
        while not self._waiting:
            if self._ended and not self._pending:
                raise StopAsyncIteration
            if not self._ended:
                await self._take()
            if self._pending and (self._ended or monotonic() >= self._next):
                begun = monotonic()
                self._waiting.extend(await run_sync(self._judge))
                self._pending = False
                self._next = monotonic() + max(_PAUSE_S, (monotonic() - begun) / _SHARE)
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """Want no more."""
        await self._files.aclose()

    async def _take(self) -> None:
        """Take the next file, or none if what has come is to be judged before it comes."""
        wait = None if not self._pending else max(self._next - monotonic(), 0)
        with move_on_after(wait):
            try:
                file = await anext(self._files)
            except StopAsyncIteration:
                self._ended = True
                return
            rows = [row for row in await _rows_of(file) if row.io is not None]
            self._rows.extend(rows)
            self._is_bad = self._is_bad or any(map(_is_bad, rows))
            self._pending = self._is_bad

    def _judge(self) -> list[Alert]:
        """Return the origins among the rows that were not told yet, or not with this blame."""
        evidence = gather(trace_of([TensorRows(self._rows).columns(COLUMNS)]), self._look_for)
        origins = find_origins(evidence)
        found = []
        for it in origins.found:
            report = report_origin(evidence, it, find_spread(evidence, origins, it))
            key = (report.step, report.model, report.op_type, report.op_name, report.io, report.index)
            if self._told.get(key) is not report.blame:
                self._told[key] = report.blame
                found.append(Alert(evidence.trace.text("file", it.row) or "", report))
        return found


def _is_bad(row: TensorRow) -> bool:
    return bool(row.nan or row.pos_inf or row.neg_inf)


async def _rows_of(file: FinishedFile) -> Sequence[TensorRow]:
    """Return the rows of *file*; none if its bytes are gone, or too many for memory."""
    if file.statistics is not None:
        return file.statistics
    try:
        data = await file.read()
    except (PartError, ValueError):
        return ()
    return await run_sync(whole_file, origin_of(file.name, step=file.step), memoryview(data))
