"""How long `dumpstream diagnose` takes for a million rows of statistics of 64 ranks, and how much memory.

The table is made here: every rank runs a chain of operators in each step, with an all-reduce now and then, at
addresses that are reused. One rank makes a NaN in the middle of the run, which spreads to everything that
follows it. The baseline reads the same columns of the table with pyarrow alone.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from io import BytesIO
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

from dumpstream.diagnosis.dataflow.trace import COLUMNS
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS as ALL
from figures import Arguments, Figure, Floor, parse_arguments, report
from simulated import scratch

if TYPE_CHECKING:
    from pathlib import Path

_RANKS, _STEPS, _OPERATORS = 64, 20, 268
_EVERY, _REUSED = 16, 32  #: operators between collectives, and buffers
_BAD_RANK, _BAD_OPERATOR = 17, 100
_SECONDS, _BYTES = Floor("ours", "<=", 30), Floor("ours", "<=", 1024)


def _row(
    rank: int, step: int, operator: int, io: str, index: int, *, bad: bool, before: bool
) -> dict[str, Any]:
    """Return what differs between rows."""
    kind = "HcomAllReduce" if operator % _EVERY == 0 else "MatMulV2"
    name = f"layer_{operator}_{kind}"
    time = 10**15 + step * 10**6 + operator * 10 + (0 if before else 5) + rank * 77_777
    weight = io == "input" and index == 1
    place = 10_000 + operator if weight else (operator + (io == "output")) % _REUSED
    shared = step * 1000 + operator + (io == "output")
    return {
        "file": f"rank-{rank}//dump/20260530164725/0//net/1/{step}/{kind}.{name}.{operator}.1.{time}",
        "op_type": kind,
        "op_name": name,
        "model": "net",
        "model_id": 1,
        "iteration": step,
        "device": 0,
        "task": operator,
        "stream": 1,
        "timestamp": time,
        "io": io,
        "index": index,
        "dtype": "float32",
        "format": "ND",
        "shape": (8, 128),
        "count": 1024,
        "nan": 3 if bad else 0,
        "pos_inf": 0,
        "neg_inf": 0,
        "zero": 0,
        "finite_max": 1.0,
        "finite_min": -1.0,
        "mean": 0.1,
        "std": 0.5,
        "l2norm": 16.0,
        "hash": f"{(operator if weight else rank * 10**6 + shared) + 10**9 * bad:016x}",
        "size": 4096,
        "bytes": 4096,
        "address": 0x12C100000000 + place * 8192,
        "source": "host",
        "rank": rank,
    }


def _rows(rank: int, step: int, bad_step: int) -> list[dict[str, Any]]:
    rows = []
    spread = (_BAD_OPERATOR // _EVERY + 1) * _EVERY
    for operator in range(1, _OPERATORS + 1):
        since = _BAD_OPERATOR if rank == _BAD_RANK else spread
        bad_output = step > bad_step or (step == bad_step and operator >= since)
        bad_input = step > bad_step or (step == bad_step and operator > since)
        collective = operator % _EVERY == 0
        rows.append(_row(rank, step, operator, "input", 0, bad=bad_input, before=collective))
        if not collective:
            rows.append(_row(rank, step, operator, "input", 1, bad=False, before=False))
        rows.append(_row(rank, step, operator, "output", 0, bad=bad_output, before=False))
    return rows


def _write(path: Path, ranks: int, steps: int) -> int:
    """Write the table and return the number of its rows."""
    count = 0
    data = BytesIO()
    writer = ParquetWriter(data)
    for rank in range(ranks):
        for step in range(steps):
            rows = _rows(rank, step, steps // 2)
            writer.write({name: [row.get(name) for row in rows] for name in ALL})
            count += len(rows)
    writer.close()
    path.write_bytes(data.getvalue())
    return count


def _diagnose(path: Path) -> tuple[float, int]:
    """Return the seconds that the command took, and the most memory that it had."""
    start = perf_counter()
    command = [sys.executable, "-m", "dumpstream", "diagnose", str(path), "--json"]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    seconds = perf_counter() - start
    (origin,) = json.loads(found.stdout)["origins"]
    if (origin["blame"], origin["rank"], origin["op_name"]) != (
        "made",
        _BAD_RANK,
        f"layer_{_BAD_OPERATOR}_MatMulV2",
    ):
        raise RuntimeError(f"the wrong culprit: {origin}")
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def _read(path: Path) -> float:
    start = perf_counter()
    pyarrow.parquet.read_table(path, columns=[*COLUMNS])
    return perf_counter() - start


def _run(arguments: Arguments) -> None:
    ranks, steps = (19, 4) if arguments.quick else (_RANKS, _STEPS)
    with scratch() as directory:
        path = directory / "run.parquet"
        rows = _write(path, ranks, steps)
        seconds, size = _diagnose(path)
        reading, table = _read(path), path.stat().st_size
    what = f"{rows:,} rows of {ranks} ranks"
    report(
        arguments,
        [
            Figure(
                name=what,
                unit="s",
                ours=seconds,
                baseline=reading,
                beside="pyarrow reads them",
                floor=_SECONDS,
            ),
            Figure(
                name=f"{what}, memory",
                unit="MiB",
                ours=size / (1 << 20),
                baseline=table / (1 << 20),
                beside="the table",
                floor=_BYTES,
            ),
        ],
    )


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
