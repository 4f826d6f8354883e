"""The trace for Perfetto, decoded with Perfetto's own definitions of the messages."""

from __future__ import annotations

import io
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from dumpstream.diagnosis.dataflow.executions import Executions, find_executions
from dumpstream.diagnosis.dataflow.flow import find_flow
from dumpstream.diagnosis.dataflow.trace import Trace, trace_of
from dumpstream.simulation import Workload
from dumpstream.statistics.engine import measure_whole
from dumpstream.tables.perfetto import write_trace

_NANOSECONDS = 1000


def _trace(text: str) -> Trace:
    files = [(file.name, file.data) for file in Workload.parse(text).expected_files("/dump")]
    columns = measure_whole(files).columns
    return trace_of([columns])


def _packets(trace: Trace) -> tuple[Executions, Any]:
    executions = find_executions(trace)
    file = io.BytesIO()
    assert write_trace(file, trace, executions, find_flow(trace, executions)) == len(executions)
    decoded = PerfettoTrace()
    decoded.ParseFromString(file.getvalue())
    return executions, decoded.packet


@pytest.fixture(scope="module")
def trace() -> Trace:
    return _trace("models=1,ops=8,steps=3,flow=on,nan=3@1,seed=4")


def test_every_operator_is_a_slice_that_ends_when_it_was_dumped(trace: Trace) -> None:
    executions, packets = _packets(trace)

    on_streams = {it.track_descriptor.uuid for it in packets if it.track_descriptor.HasField("thread")}
    events = [it for it in packets if it.track_event.track_uuid in on_streams]
    begun = [it.track_event.name for it in events if it.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    ended = [it.timestamp for it in events if it.track_event.type == TrackEvent.TYPE_SLICE_END]
    names = [trace.texts["op_name"][code] for code in executions.op_name.tolist()]
    assert sorted(begun) == sorted(map(str, names))
    assert {*ended} <= {time * _NANOSECONDS for time in trace.counts["timestamp"].tolist()}


def test_slices_of_a_stream_do_not_overlap(trace: Trace) -> None:
    _, packets = _packets(trace)

    open_on: dict[int, int] = {}
    latest: dict[int, int] = {}
    for packet in packets:
        event = packet.track_event
        if event.type in {TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END}:
            assert packet.timestamp >= latest.get(event.track_uuid, 0)
            latest[event.track_uuid] = packet.timestamp
            change = 1 if event.type == TrackEvent.TYPE_SLICE_BEGIN else -1
            open_on[event.track_uuid] = open_on.get(event.track_uuid, 0) + change
            assert 0 <= open_on[event.track_uuid] <= 1
    assert not any(open_on.values())


def test_outputs_with_nans_are_marked_at_their_operator(trace: Trace) -> None:
    _, packets = _packets(trace)

    marked = [it.track_event.name for it in packets if it.track_event.type == TrackEvent.TYPE_INSTANT]
    bad = trace.counts["nan"][(trace.io == 1) & (trace.counts["nan"] > 0)]
    assert sorted(int(name.split()[4]) for name in marked if name.startswith("NaN")) == sorted(bad.tolist())
    assert len(bad)


def test_arrows_lead_from_the_operator_that_wrote_to_those_that_read(trace: Trace) -> None:
    executions, packets = _packets(trace)

    slices = [it.track_event for it in packets if it.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    ends: dict[int, int] = {}
    for event in slices:
        for flow in event.flow_ids:
            ends[flow] = ends.get(flow, 0) + 1
    assert ends
    assert {*ends.values()} == {2}
    assert len(executions)


def test_counters_and_steps_have_tracks_of_their_own(trace: Trace) -> None:
    _, packets = _packets(trace)

    titles = {it.track_descriptor.name for it in packets if it.HasField("track_descriptor")}
    steps = {it.track_event.name for it in packets if it.track_event.name.startswith("step ")}
    assert {"steps", "NaN elements", "infinite elements"} <= titles
    assert steps == {"step 0", "step 1", "step 2"}


def test_name_that_is_not_utf_8_is_shown_escaped() -> None:
    trace = _trace("models=1,ops=1")
    texts = {**trace.texts, "op_name": ["\udcff"]}
    strange = Trace(**{**vars(trace), "texts": texts})

    _, packets = _packets(strange)

    assert any(it.track_event.name == "\\udcff" for it in packets)
