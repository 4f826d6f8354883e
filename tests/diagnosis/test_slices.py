"""Tensors that were read as a part of another, or joined of several: proven if the bytes are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import dumpstream
from dumpstream.diagnosis import slices
from dumpstream.diagnosis.answer import examine
from dumpstream.diagnosis.dataflow.flow import Link
from dumpstream.diagnosis.subject import read_subject
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, executions, simulated_library

if TYPE_CHECKING:
    from dumpstream.diagnosis.evidence import Evidence

_TYPES = "MatMulV2+Relu+Add+LayerNorm+Mul"
LIBRARY = simulated_library()
#: Seeds of which the graph has operators that read and write halves.
_HALVES = (3, 4)


def workload(seed: int, more: str = "") -> Workload:
    text = f"flow=on,models=1,ops=12,steps=2,tensor_bytes=64-1024,dtypes=float32,op_types={_TYPES}"
    return Workload.parse(f"{text},seed={seed}{more}")


def write(root: Path, run: Workload) -> Path:
    for file in run.expected_files(root):
        path = Path(file.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    return root


def partial_edges(evidence: Evidence) -> dict[tuple[str, str], Link]:
    """Return the edges between tensors of different sizes: from an output to an input, each of a step."""
    flow, trace = evidence.flow, evidence.trace
    size = trace.counts["size"]

    def named(row: int) -> str:
        step, name = trace.number("iteration", row), trace.text("op_name", row)
        return f"{step}/{name}:{trace.number('index', row)}"

    return {
        (named(source), named(reader)): Link(link)
        for reader, source, link in zip(
            flow.readers.tolist(), flow.sources.tolist(), flow.links.tolist(), strict=True
        )
        if size[reader] != size[source] and link != Link.BEFORE
    }


def true_edges(run: Workload) -> set[tuple[str, str]]:
    found = set()
    for step in range(run.steps):
        ran = [*executions(run, step)]
        for it in ran:
            for index, operand in enumerate(it.inputs):
                for source in operand.sources:
                    if source.kind == "operator":
                        writer = f"{step}/{ran[source.number].name}:{source.output}"
                        found.add((writer, f"{step}/{it.name}:{index}"))
    return found


@pytest.mark.parametrize("seed", _HALVES)
def test_what_was_read_of_a_part_is_proven_by_its_bytes(tmp_path: Path, seed: int) -> None:
    run = workload(seed)
    subject = read_subject(write(tmp_path, run))

    suggested = partial_edges(examine(subject, read_bytes=False))
    proven = partial_edges(examine(subject))

    assert {*suggested.values()} == {Link.SUGGESTED}
    assert {it for it, link in proven.items() if link is Link.PROVEN} <= true_edges(run)
    assert Link.PROVEN in proven.values()


def test_a_part_that_an_operator_wrote_which_was_not_dumped_is_no_edge(tmp_path: Path) -> None:
    refuted = 0
    for place in range(12):
        run = workload(3, f",undumped={place}")
        subject = read_subject(write(tmp_path / str(place), run))
        suggested, proven = partial_edges(examine(subject, read_bytes=False)), partial_edges(examine(subject))
        assert {it for it, link in proven.items() if link is Link.PROVEN} <= true_edges(run)
        gone = suggested.keys() - proven.keys()
        assert not gone & true_edges(run)
        refuted += len(gone)

    assert refuted


def test_the_bytes_of_a_capture_prove_it_and_statistics_alone_do_not(tmp_path: Path) -> None:
    run = workload(4)

    async def capture(sink: str) -> Path:
        path = tmp_path / sink.removesuffix(":")
        with SimulatedRuntime(run) as runtime:
            async with dumpstream.open_capture(
                path, config=tmp_path / "acl.json", acl_library=LIBRARY, sinks=[sink]
            ):
                await anyio.to_thread.run_sync(runtime.run)
        return path

    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(dump_config(tmp_path / "npu"))

    stored, measured = (anyio.run(capture, sink) for sink in ("zstd:", "stats:"))

    assert Link.PROVEN in partial_edges(examine(read_subject(stored))).values()
    assert {*partial_edges(examine(read_subject(measured))).values()} == {Link.SUGGESTED}


def test_reading_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = read_subject(write(tmp_path, workload(4)))
    monkeypatch.setattr(slices, "_MOST_BYTES", 0)

    assert {*partial_edges(examine(subject)).values()} == {Link.SUGGESTED}


def test_a_damaged_file_proves_nothing(tmp_path: Path) -> None:
    subject = read_subject(write(tmp_path, workload(4)))
    for path in tmp_path.rglob("*.*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:40])

    assert {*partial_edges(examine(subject)).values()} == {Link.SUGGESTED}
