"""Random jobs of several processes, as collectors leave them, and commands that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from tests.conftest import CollectionBuilder, DumpBuilder

from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.sinks.tables.parts import ParquetParts, TreeTables
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.conftest import CaptureBuilder

_OPERATORS = ("MatMul", "Add", "Cast")
_TEXT = next(
    file
    for file in Workload.parse("models=1,ops=3,stats_text=1").expected_files("/dump")
    if file.name.endswith(".csv")
)


class DumpedFile(NamedTuple):
    """A file of a process."""

    kind: str
    number: int
    values: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """As CANN names it; some names are not UTF-8, and some say nothing."""
        time = 1_780_000_000_000_000 + self.number
        stem = f"{_OPERATORS[self.number % 3]}.layer_{self.number}.{self.number}.0.{time}"
        names = {"odd": f"/dump/0/m/1/0/{stem}\udcff", "foreign": f"notes{self.number}", "text": _TEXT.name}
        return names.get(self.kind, f"/dump/0/m/1/{self.number % 2}/{stem}")

    @property
    def data(self) -> bytes:
        if self.kind == "text":
            return _TEXT.data
        if self.kind == "foreign":
            return b"not a dump file"
        floats = np.array(self.values, np.float32)
        whole = (
            DumpBuilder(f"layer_{self.number}")
            .input(np.array([-(2**31), 2**31 - 1], np.int32))
            .output(floats)
        )
        data = whole.build()
        return data[:-1] if self.kind == "short" else data

    @property
    def verdict(self) -> Verdict:
        if self.kind in {"text", "foreign"}:
            return Verdict.UNPARSED
        return Verdict.SHORT if self.kind == "short" else Verdict.COMPLETE


class Rank(NamedTuple):
    """What happened to a process."""

    files: list[DumpedFile]
    ending: str  #: ``finished``, ``garbled`` (a line of the journal), ``interrupted`` or ``refused``
    has_tables: bool = False


_FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
_FILES = st.builds(
    DumpedFile,
    st.sampled_from(["whole", "whole", "whole", "short", "odd", "foreign", "missing", "text"]),
    st.integers(0, 40),
    st.lists(_FLOATS, min_size=1, max_size=4).map(tuple),
)
_RANKS = st.builds(
    Rank,
    st.lists(_FILES, max_size=6),
    st.sampled_from(["finished", "finished", "garbled", "interrupted", "refused"]),
    st.booleans(),
)
_JOBS_RANKS = st.lists(_RANKS, min_size=1, max_size=5)


class Job(NamedTuple):
    """What happened to a job."""

    ranks: list[Rank]
    hosts: int = 0  #: that the ranks are dealt to; 0 if there is no host but the captures alone
    broken: bool = False  #: whether the manifest of the last host cannot be read


jobs = st.builds(Job, _JOBS_RANKS, st.integers(0, 3), st.booleans())


def _with_utf8(job: Job) -> Job:
    """Return *job* with names that a catalog of a comparison can hold."""
    ranks = [
        rank._replace(files=[it._replace(kind="whole") if it.kind == "odd" else it for it in rank.files])
        for rank in job.ranks
    ]
    return job._replace(ranks=ranks)


comparable_jobs = jobs.map(_with_utf8)


def leave(path: Path, job: Job) -> Path:
    """Leave the captures of *job*; beside them are files that no journal names."""
    ranks = dict(enumerate(job.ranks))
    for number in range(job.hosts):
        own = _leave(
            path, f"node-{number}", {it: rank for it, rank in ranks.items() if it % job.hosts == number}
        )
        if job.broken and number == job.hosts - 1:
            (own / "manifest.json").write_bytes(b"{")
    if not job.hosts:
        _leave(path, None, ranks)
    else:
        (path / "notes").write_bytes(b"?")
    return path


def _leave(path: Path, host: str | None, ranks: dict[int, Rank]) -> Path:
    collection = CollectionBuilder(path, host)
    for number, rank in ranks.items():
        if rank.ending == "refused":
            collection.refuse(pid=100 + number)
            continue
        figures = {
            "files": len({it.name for it in rank.files}),
            "bytes": sum(len(it.data) for it in rank.files),
        }
        known = figures if rank.ending == "finished" else {}
        capture = collection.begin(rank=number, pid=100 + number, **known)
        _add(capture, rank)
        if rank.ending == "garbled":
            capture.write('{"type":"file","name":}')
        if rank.ending == "interrupted":
            capture.interrupt()
        else:
            collection.end(capture)
    (collection.path / "stranger").write_bytes(b"?")
    return collection.finish()


def _add(capture: CaptureBuilder, rank: Rank) -> None:
    tables = None
    if rank.has_tables:
        tree = Tree(
            capture.path, below=("stats",), suffix=".parquet", base=capture.path, directories=2, durable=False
        )
        tables = ParquetParts(TreeTables(tree, sync=False))
    for place, file in enumerate(rank.files):
        # Every second file is in a table, and has no bytes.
        if tables is not None and place % 2 and file.kind == "whole":
            rows = whole_file(origin_of(file.name), memoryview(file.data))
            (kept,) = tables.add([(file.name, rows)])
            part = StoredPart("stats", kept.path, 0, len(file.data), kept.bytes, None)
        else:
            part = capture.store(f"files/{place}.zst", file.data)
            if file.kind == "missing":
                (capture.path / f"files/{place}.zst").unlink()
        capture.write(FileRow(file.name, len(file.data), 1, file.verdict, [part]).to_line())
    if tables is not None:
        tables.close()


class Ended(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Ended:
    """Run a command in this process."""
    code = main([*map(str, arguments)])
    said = capsys.readouterr()
    return Ended(code, said.out, said.err)
