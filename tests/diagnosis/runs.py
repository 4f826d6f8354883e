"""Runs that are written row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dumpstream.diagnosis.dataflow.trace import trace_of
from dumpstream.diagnosis.evidence import Evidence, gather
from dumpstream.diagnosis.origins import Origins, find_origins
from dumpstream.statistics.table import Address, TensorRow
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Sequence


class T(NamedTuple):
    """A tensor: where it lies, and what it is."""

    address: int
    hash: int
    nan: int = 0
    size: int = 64
    more: Any = ()  #: other columns


class Run:
    """The rows of a run, in the order in which its operators ran."""

    def __init__(self) -> None:
        self.rows = TensorRows()
        self._time = 10**15

    def op(
        self,
        name: str,
        inputs: Sequence[T] = (),
        outputs: Sequence[T] = (),
        *,
        task: int,
        step: int | None = 0,
        rank: int | None = 0,
        stream: int = 1,
        apart: bool = False,
    ) -> Run:
        """Add an operator ``Type.name``; its inputs are in a file of their own if they are *apart*."""
        op_type, _, op_name = name.rpartition(".")
        for io, tensors in (("input", inputs), ("output", outputs)):
            self._time += 1 if io == "input" or apart else 0
            # Clocks of ranks differ by hours.
            time = self._time + (rank or 0) * -(10**10)
            where = "" if step is None else f"net/1/{step}/"
            file = f"/d{rank}/20260530164725/0//{where}{op_type}.{op_name}.{task}.{stream}.{time}"
            self.rows += [
                TensorRow(
                    file,
                    op_type=op_type,
                    op_name=op_name,
                    model=None if step is None else "net",
                    iteration=step,
                    device=0,
                    task=task,
                    stream=stream,
                    timestamp=time,
                    io=io,
                    shape=(it.size // 4,),
                    rank=rank,
                    **{"index": index} | _numbers(it),
                )
                for index, it in enumerate(tensors)
            ]
        return self

    def evidence(self) -> Evidence:
        return gather(trace_of([self.rows]))

    def origins(self) -> Origins:
        return find_origins(self.evidence())

    def blames(self) -> dict[str | None, str]:
        """Return the blame of each operator with a bad output."""
        evidence = self.evidence()
        names = evidence.trace.texts["op_name"]
        found = find_origins(evidence).judgements.items()
        return {
            names[evidence.executions.op_name[number]]: f"{it.blame}: {it.reason}" for number, it in found
        }


def _numbers(it: T) -> dict[str, Any]:
    elements = it.size // 4
    return {
        "dtype": "float32",
        "count": elements,
        "nan": it.nan,
        "pos_inf": 0,
        "neg_inf": 0,
        "zero": 0,
        "finite_max": 1.0,
        "finite_min": -1.0,
        "mean": 0.0,
        "std": 0.5,
        "l2norm": 2.0,
        "hash": f"{it.hash:016x}",
        "size": it.size,
        "bytes": it.size,
        "address": Address(it.address),
        **dict(it.more),
    }
