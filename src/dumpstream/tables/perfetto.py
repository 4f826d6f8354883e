"""Perfetto: a run as a trace for Perfetto's viewer.

A process is a rank, a thread is a stream, and a slice is an operator. CANN says when an operator was dumped,
and not how long it ran: a slice begins when the one before it on its stream ended, but at most a millisecond
before its own end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.flow import Flow, Link
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Numbers, Process, Trace
from dumpstream.tables.protobuf import double, fixed, message, number, text

# Fields of the messages, by Perfetto's definitions.
_PACKET = 1
_TIME, _SEQUENCE, _EVENT, _TRACK = 8, 10, 11, 60
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_PID, _TID, _THREAD_NAME, _PROCESS_NAME = 1, 2, 5, 6
_ANNOTATION, _KIND, _ON, _CATEGORY, _TITLE, _VALUE, _FLOW = 4, 9, 11, 22, 23, 44, 47
_ANNOTATION_NAME, _ANNOTATION_TEXT = 10, 6
# Kinds of events.
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4

_NANOSECONDS = 1000  #: of a microsecond
_LONGEST = 1_000_000  #: nanoseconds of a slice
_PACKETS_AT_ONCE = 4096
_COUNTERS = ("NaN elements", "infinite elements", "log10 of the largest magnitude")
_ARROWS = (Link.PROVEN, Link.SUGGESTED)
_THREADS = 100_000  #: numbers of threads that a process may use


def write_trace(file: IO[bytes], trace: Trace, executions: Executions, flow: Flow) -> int:
    """Write the trace, and return how many operators it has; those without a time are not in it."""
    times = _times(trace, executions)
    packets: list[bytes] = []
    for packet in _Packets(trace, executions, flow, times).all():
        packets.append(message(_PACKET, number(_SEQUENCE, 1), packet))
        if len(packets) == _PACKETS_AT_ONCE:
            file.write(b"".join(packets))
            packets.clear()
    file.write(b"".join(packets))
    return int(np.count_nonzero(times != UNKNOWN))


def _times(trace: Trace, executions: Executions) -> Numbers:
    """Return when each execution was dumped, in microseconds; the later time, if it has two files."""
    times = np.full(len(executions), UNKNOWN, np.int64)
    rows = np.flatnonzero(executions.of_row != UNKNOWN)
    np.maximum.at(times, executions.of_row[rows], trace.counts["timestamp"][rows])
    return times


class _Packets:
    def __init__(self, trace: Trace, executions: Executions, flow: Flow, times: Numbers) -> None:
        self._trace, self._executions, self._times = trace, executions, times
        self._arrows = _arrows(executions, flow, times)

    def all(self) -> Iterator[bytes]:
        """Yield all packets, process by process."""
        executions, times = self._executions, self._times
        for process, about in enumerate(self._trace.processes):
            shown = np.flatnonzero((executions.process == process) & (times != UNKNOWN))
            if len(shown):
                yield from self._of_process(process, about, shown)

    def _of_process(self, process: int, about: Process, shown: Numbers) -> Iterator[bytes]:
        base = (process + 1) * 2 * _THREADS  # of the ids of its tracks
        pid = process + 1
        yield _track(base, message(_PROCESS, number(_PID, pid), text(_PROCESS_NAME, about.label)))
        steps, *counters = range(base + 1, base + 2 + len(_COUNTERS))
        yield _track(steps, text(_NAME, "steps"), number(_PARENT, base))
        for uuid, title in zip(counters, _COUNTERS, strict=True):
            yield _track(uuid, text(_NAME, title), number(_PARENT, base), message(_COUNTER))
        spans: dict[int, tuple[int, int]] = {}
        streams = self._executions.stream[shown]
        for place, stream in enumerate(np.unique(streams).tolist()):
            uuid = base + _THREADS + place
            name = "stream not known" if stream == UNKNOWN else f"stream {stream}"
            thread = message(
                _THREAD, number(_PID, pid), number(_TID, pid * _THREADS + place), text(_THREAD_NAME, name)
            )
            yield _track(uuid, thread, number(_PARENT, base))
            yield from self._of_stream(uuid, shown[streams == stream], spans)
        yield from _steps(steps, spans)
        yield from self._counters(counters, shown)

    def _of_stream(self, uuid: int, shown: Numbers, spans: dict[int, tuple[int, int]]) -> Iterator[bytes]:
        """Yield the slices of a stream, and take note from when to when each step went."""
        executions = self._executions
        before = 0
        for execution in shown[np.argsort(self._times[shown], kind="stable")].tolist():
            end = int(self._times[execution]) * _NANOSECONDS
            begin = max(before, end - _LONGEST)
            before = end
            flows = [fixed(_FLOW, it) for it in self._arrows.get(execution, ())]
            yield _event(begin, uuid, _BEGIN, *self._about(execution), *flows)
            yield from self._marks(execution, end, uuid)
            yield _event(end, uuid, _END)
            if (step := int(executions.step[execution])) != UNKNOWN:
                first, last = spans.get(step, (begin, end))
                spans[step] = min(first, begin), max(last, end)

    def _about(self, execution: int) -> Iterator[bytes]:
        executions, texts = self._executions, self._trace.texts
        op_type = texts["op_type"][int(executions.op_type[execution])]
        op_name = texts["op_name"][int(executions.op_name[execution])]
        yield text(_TITLE, op_name or op_type or "not known")
        yield text(_CATEGORY, op_type or "operator")
        said = {
            "type": op_type,
            "model": texts["model"][int(executions.model[execution])],
            "step": _known(executions.step[execution]),
            "task": _known(executions.task[execution]),
        }
        for io, slots in (("input", executions.inputs), ("output", executions.outputs)):
            for row in slots.of(execution):
                said[f"{io} {self._trace.number('index', row)}"] = self._tensor_text(row)
        for name, value in said.items():
            if value is not None:
                yield message(_ANNOTATION, text(_ANNOTATION_NAME, name), text(_ANNOTATION_TEXT, str(value)))

    def _tensor_text(self, row: int) -> str:
        trace = self._trace
        parts = [f"{trace.text('dtype', row)} {[*(trace.shapes[int(trace.shape[row])] or ())]}"]
        for name in ("finite_min", "finite_max", "mean"):
            value = float(trace.reals[name][row])
            parts += [] if math.isnan(value) else [f"{name.removeprefix('finite_')} {value:.6g}"]
        for name in ("nan", "pos_inf", "neg_inf"):
            parts += [f"{name} {count}"] if (count := trace.number(name, row)) else []
        return ", ".join(parts)

    def _marks(self, execution: int, time: int, uuid: int) -> Iterator[bytes]:
        """Yield an instant event for each output with NaNs or infinities."""
        trace = self._trace
        for row in self._executions.outputs.of(execution):
            nan, infinite = _bad(trace, row)
            for word, count in (("NaN", nan), ("infinity", infinite)):
                if count:
                    of = f"{count} of {trace.number('count', row)}"
                    title = f"{word} in output {trace.number('index', row)}: {of}"
                    yield _event(time, uuid, _INSTANT, text(_TITLE, title), text(_CATEGORY, word))

    def _counters(self, uuids: Sequence[int], shown: Numbers) -> Iterator[bytes]:
        trace = self._trace
        for execution in shown[np.argsort(self._times[shown], kind="stable")].tolist():
            rows = self._executions.outputs.of(execution)
            if rows:
                bad = [_bad(trace, row) for row in rows]
                values = [float(sum(nan for nan, _ in bad)), float(sum(infinite for _, infinite in bad))]
                extremes = [
                    abs(float(trace.reals[it][row])) for it in ("finite_max", "finite_min") for row in rows
                ]
                largest = max((it for it in extremes if it > 0), default=0.0)
                values += [math.log10(largest)] if largest else []
                time = int(self._times[execution]) * _NANOSECONDS
                for uuid, value in zip(uuids, values, strict=False):
                    yield _event(time, uuid, _COUNT, double(_VALUE, value))


def _steps(uuid: int, spans: dict[int, tuple[int, int]]) -> Iterator[bytes]:
    before = 0
    for step, (begin, end) in sorted(spans.items(), key=lambda it: it[1]):
        yield _event(max(begin, before), uuid, _BEGIN, text(_TITLE, f"step {step}"))
        before = max(end, before)
        yield _event(before, uuid, _END)


def _arrows(executions: Executions, flow: Flow, times: Numbers) -> dict[int, list[int]]:
    """Return the arrows that begin or end at each execution, by their numbers."""
    found: dict[int, list[int]] = {}
    drawn = np.flatnonzero(np.isin(flow.links, [int(link) for link in _ARROWS]))
    makers = executions.of_row[flow.sources[drawn]]
    takers = executions.of_row[flow.readers[drawn]]
    pairs = {*zip(makers.tolist(), takers.tolist(), strict=True)}
    for arrow, pair in enumerate(sorted(pairs), 1):
        if UNKNOWN not in pair and pair[0] != pair[1] and min(times[it] for it in pair) != UNKNOWN:
            for execution in pair:
                found.setdefault(execution, []).append(arrow)
    return found


def _bad(trace: Trace, row: int) -> tuple[int, int]:
    """Return how many NaNs and how many infinities a tensor has."""
    nan, positive, negative = (trace.number(name, row) or 0 for name in ("nan", "pos_inf", "neg_inf"))
    return nan, positive + negative


def _known(value: np.int64) -> int | None:
    return None if value == UNKNOWN else int(value)


def _track(uuid: int, *parts: bytes) -> bytes:
    return message(_TRACK, number(_UUID, uuid), *parts)


def _event(time: int, uuid: int, kind: int, *parts: bytes) -> bytes:
    return number(_TIME, time) + message(_EVENT, number(_KIND, kind), number(_ON, uuid), *parts)
