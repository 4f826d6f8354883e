"""Alerts: the first bad tensor of a capture, told while it runs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, Self

import anyio
import numpy as np
from typing_extensions import Buffer

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.overflow import OverflowRecord, records_of
from dumpstream.archive.alertrow import AlertRow
from dumpstream.config.model import DumpSettings
from dumpstream.diagnosis.badness import DEFAULT, SATURATED, Badness
from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import Mask, Process, trace_of
from dumpstream.diagnosis.evidence import NOTHING_HIDDEN, Evidence, gather
from dumpstream.diagnosis.origins import Origin, find_origins, find_spread
from dumpstream.diagnosis.report import OriginReport, report_origin
from dumpstream.diagnosis.sentence import sentence_of
from dumpstream.diagnosis.subject import hidden_by, overflowed
from dumpstream.format.opname import parse_name
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.stages.notices import Notice, Notices, OnSlow
from dumpstream.statistics.columns import FileColumns
from dumpstream.statistics.tensors import TensorRows

#: Rows that are kept, to judge the first bad one by: of those before it, and of those behind it.
_ROWS = 8192
#: Records of overflows that are kept; those before a bad tensor come with it.
_RECORDS = 1024
#: How often a device is told of: once, and the corrections.
_MOST = 8
#: The devices that are told of: more than a process has. Their numbers come from names, so a hostile process
#: has any number of them, and each alert may start a command.
_MOST_DEVICES = 64
#: Alerts that may wait for a consumer.
_WAITING = 1024
#: What can be told of a tensor by itself.
_KINDS = (Badness.NAN, Badness.INF, Badness.OVERFLOW, Badness.SATURATION)


@dataclass(frozen=True, slots=True)
class Alert(Notice):
    """The first that is bad on a device, as far as it can be judged by what had come until then."""

    file: str  #: that has the bad tensor
    origin: OriginReport
    device: int | None = None
    corrects: bool = False  #: whether it replaces the alert of the same device before it

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        return sentence_of(self.origin, concurrent=1, stayed=False)

    def as_row(self, time: str) -> AlertRow:
        """Return the line of it in the journal; *time* is when it was told."""
        it = self.origin
        return AlertRow(
            time=time,
            sentence=self.sentence,
            kind=str(it.kind),
            blame=str(it.blame),
            reason=it.reason,
            corrects=self.corrects,
            file=self.file,
            device=self.device,
            model=it.model,
            step=it.step,
            op_type=it.op_type,
            op_name=it.op_name,
            io=it.io,
            index=it.index,
            count=it.count,
            bad=it.bad,
        )


class Alerts:
    """The alerts of a capture, those that were *told* before first: an async iterator."""

    def __init__(self, told: Iterable[Alert], notices: Notices) -> None:
        self._told = deque(told)
        self._subscription = notices.subscribe(Alert, most=_WAITING, on_slow=OnSlow.SKIP)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Alert:
        """Return the next alert; raises what ended the capture."""
        if self._told:
            return self._told.popleft()
        try:
            return await self._subscription.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Want no more."""
        self._subscription.close()


def alert_kinds(alert: bool | Iterable[Badness | str]) -> tuple[str, ...] | None:  # noqa: FBT001 - as users write it
    """Return what *alert* asks to look for; None if it asks for nothing.

    Raises:
        ValueError: it names something else, or something that takes a whole run to find.
    """
    if isinstance(alert, bool):
        return tuple(map(str, DEFAULT)) if alert else None
    kinds = [Badness(kind) for kind in ([alert] if isinstance(alert, str) else alert)]
    if unfit := [kind for kind in kinds if kind not in _KINDS]:
        raise ValueError(
            f"alert={unfit[0].value!r} is not possible while a capture runs; choose some of "
            f"{', '.join(_KINDS)}, and find {unfit[0]} with `dumpstream diagnose`"
        )
    return tuple(map(str, kinds)) or None


class _Round(NamedTuple):
    """What was heard until enough had come behind the first bad tensor."""

    look_for: list[Badness]
    kept: list[FileColumns | TensorRows]
    records: list[OverflowRecord]


class Lookout:
    """Finds the first bad tensors among those that the sinks of a capture measure.

    The rows before the first bad one are kept, and some behind it, which may show that it was judged wrongly.
    Then only what is worse than all that was found is looked for, behind an infinity a NaN, and at last
    nothing. What it hears may come from any thread; it calls *wake* if `judge` is due.
    """

    def __init__(self, look_for: Iterable[Badness], wake: Callable[[], object]) -> None:
        self._look_for, self._wake = [*look_for], wake
        self._lock = Lock()
        self._kept: deque[FileColumns | TensorRows] = deque()
        self._records: deque[OverflowRecord] = deque(maxlen=_RECORDS)
        self._ended: list[_Round] = []  # and not judged yet
        self._rows = 0
        self._behind = 0  # rows since the first bad one
        self._bad: set[int | None] = set()  # devices that have something bad
        self._seen: set[Badness] = set()
        self._hidden = NOTHING_HIDDEN
        self._told: dict[Process, tuple[object, ...]] = {}
        self._counts: Counter[Process] = Counter()
        self.due = False  #: whether rows have come that may change what was told
        self.pressing = False  #: whether that is the first of a device, which is not to wait for long
        self.over = False  #: whether nothing can change that any more

    def configure(self, settings: Iterable[DumpSettings]) -> None:
        """Heed what *settings*, one after the other those of the run, leave out of files."""
        for it in settings:
            self._hidden |= hidden_by(it)

    def hear(self, measured: FileColumns | TensorRows) -> None:
        """Keep what was *measured*, as long as it may be needed."""
        count = _count(measured)
        if self.over or not count:
            return
        with self._lock:
            self._kept.append(measured)
            self._rows += count
            self._note_bad(_bad_devices(measured, self._look_for))
            if self._bad:
                self._behind += count
                self.due = True
                if self._behind >= _ROWS:
                    self._end_round()
            while self._kept and not self._bad and self._rows - _count(self._kept[0]) >= _ROWS:
                self._rows -= _count(self._kept.popleft())
        if self.due:
            self._wake()

    def hear_record(self, name: str, data: Buffer) -> None:
        """Keep what the device wrote down about an overflow; one that cannot be read is left to `verify`."""
        if self.over or Badness.OVERFLOW not in self._look_for:
            return
        said = parse_name(name)
        with suppress(DumpstreamError), DumpFile.open(data) as dump:
            records = records_of(dump, name, said)
            with self._lock:
                self._records.extend(it for it in records if isinstance(it, OverflowRecord))
                self._note_bad({Badness.OVERFLOW: {said.device}})
                self.due = True
        if self.due:
            self._wake()

    def judge(self) -> list[Alert]:
        """Return the first bad tensor of each device, unless it was told already and is judged as before."""
        with self._lock:
            self.due = self.pressing = False
            ended, self._ended = self._ended, []
            rest = _Round([*self._look_for], [*self._kept], [*self._records]) if self._bad else None
        found: list[Alert] = []
        for it in ended:
            found += self._judge(it)
            self._told.clear()
        return found if rest is None else found + self._judge(rest)

    def _judge(self, heard: _Round) -> list[Alert]:
        trace = trace_of(_addressed(it) for it in heard.kept)
        others: Callable[[Executions], dict[Badness, Mask]] = lambda ran: (  # noqa: E731 - it is short
            {Badness.OVERFLOW: overflowed(trace, ran, heard.records)} if heard.records else {}
        )
        evidence = gather(trace, heard.look_for, others=others, hidden=self._hidden)
        origins = find_origins(evidence)
        first: dict[Process, Origin] = {}
        for it in origins.found:
            process = trace.processes[int(evidence.executions.process[it.execution])]
            if process in self._told or len(self._told.keys() | first.keys()) < _MOST_DEVICES:
                first.setdefault(process, it)
        found: list[Alert] = []
        for process, it in first.items():
            spread = find_spread(evidence, origins, it)
            found += self._news(process, evidence, it, report_origin(evidence, it, spread))
        return found

    def _end_round(self) -> None:
        """Leave what was heard to be judged for the last time, and look only for what is worse."""
        self._ended.append(_Round(self._look_for, [*self._kept], [*self._records]))
        order = [*Badness]
        worst = min(order.index(it) for it in self._seen)
        self._look_for = [it for it in self._look_for if order.index(it) < worst]
        self.over = not self._look_for
        self._behind = 0
        self._bad.clear()
        self._seen.clear()
        if self.over:
            self._kept.clear()

    def stop(self) -> None:
        """Look for nothing more."""
        with self._lock:
            self.due, self.pressing, self.over = False, False, True
            self._kept.clear()
            self._ended.clear()

    def _news(
        self, process: Process, evidence: Evidence, origin: Origin, report: OriginReport
    ) -> Iterator[Alert]:
        it = report
        told = (it.blame, it.step, it.model, it.op_type, it.op_name, it.io, it.index)
        if self._told.get(process) != told and self._counts[process] < _MOST:
            file = evidence.trace.text("file", origin.row) or ""
            yield Alert(file, report, process.device, corrects=process in self._told)
            self._told[process] = told
            self._counts[process] += 1

    def _note_bad(self, found: dict[Badness, set[int | None]]) -> None:
        devices = {device for of_kind in found.values() for device in of_kind}
        self._seen |= found.keys()
        if not devices <= self._bad and len(self._bad) < _MOST_DEVICES:
            self._bad |= devices
            self.pressing = True


def _bad_devices(
    measured: FileColumns | TensorRows, look_for: Sequence[Badness]
) -> dict[Badness, set[int | None]]:
    """Return the devices of which *measured* has something bad of each kind."""
    found: dict[Badness, set[int | None]] = {}
    if isinstance(measured, FileColumns):
        rows, devices = measured.tensors, measured.said["device"]
        for kind, bad in ((Badness.NAN, rows["nan"]), (Badness.INF, rows["pos_inf"] | rows["neg_inf"])):
            if kind in look_for and bad.any():
                found[kind] = {devices[file] for file in np.unique(rows["file"][bad != 0])}
        return found
    for row in measured:
        kinds = {
            Badness.NAN: row.nan,
            Badness.INF: row.pos_inf or row.neg_inf,
            Badness.SATURATION: (row.saturated or 0) > SATURATED,
        }
        for kind, is_bad in kinds.items():
            if is_bad and kind in look_for:
                found.setdefault(kind, set()).add(row.device)
    return found


def _count(measured: FileColumns | TensorRows) -> int:
    return measured.rows if isinstance(measured, FileColumns) else len(measured)


def _addressed(measured: FileColumns | TensorRows) -> FileColumns | TensorRows:
    """Return the rows that are tensors, and not problems of a file."""
    if isinstance(measured, FileColumns):
        return measured
    return TensorRows(row for row in measured if row.io is not None)
