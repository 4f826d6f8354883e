"""Database: the tables of a run, asked in SQL.

DuckDB is shut in: it may read the tables and nothing else, and a query cannot change that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.reading.inputs import refuse_missing
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.statistics.table import COLUMNS
from dumpstream.system.location import Prefix
from dumpstream.system.scratch import ScratchDirectory

_BATCH_ROWS = 8192
_OF_TENSORS = {
    "tensors": "SELECT * FROM {} WHERE io IS NOT NULL",
    "problems": "SELECT file, problem FROM {} WHERE io IS NULL",
}
#: Neither variables of the program nor extensions, which would be downloaded, stand behind a name.
_SHUT_IN = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


class QueryError(ValueError):
    """DuckDB does not understand a query, or must not do what it asks for."""


class Database:
    """The tables of a run; made by `open_database`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ask(self, query: str) -> Answer:
        """Return what answers *query*; read it to its end, or not at all, before the next one.

        Raises:
            QueryError: it is not a query, or asks for something outside the tables.
        """
        with _refusing():
            statements = self._connection.extract_statements(query)
            # What is not a SELECT could write to the files behind the tables, which the cache keeps.
            if [it.type.name for it in statements] != ["SELECT"]:
                raise QueryError("ask one SELECT, such as: select * from tensors limit 10")
            return Answer(self._connection.sql(query).to_arrow_reader(_BATCH_ROWS))


class Answer:
    """The rows that answer a query."""

    def __init__(self, reader: Any) -> None:
        self.schema = reader.schema  #: of Arrow
        self._reader = reader

    def __iter__(self) -> Iterator[Any]:
        """Yield record batches of Arrow; raises `QueryError` if a value cannot be computed."""
        while True:
            with _refusing():
                batch = next(self._reader, None)
            if batch is None:
                return
            yield batch


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise what DuckDB refuses in the block as a `QueryError`."""
    import duckdb  # noqa: PLC0415 - optional
    import pyarrow as pa  # noqa: PLC0415 - likewise

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as exc:
        problem, *places = [line for line in str(exc).splitlines() if line.strip()]
        error = QueryError(problem)
        for line in places:  # of the query, with a mark below what is wrong
            error.add_note(line)
        raise error from exc


@contextmanager
def open_database(
    paths: Sequence[Path | Prefix],
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    *,
    query: str,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Iterator[Database]:
    """Have the tables of *paths* that *query* may name while the block runs.

    Args:
        paths: captures; for `tensors`, `problems` and `edges` also dump files and directories of them.
        ranks: only these, in captures of several processes.
        hosts: only these, in jobs of several.
        query: what will be asked; tables that it does not mention are not made.
        told: is told how many tensors, and how many bytes of files, were read to make the tables.

    Raises:
        DumpstreamError: an extra is missing, there is nothing at a path, or it cannot be read.
    """
    require_duckdb()
    import duckdb  # noqa: PLC0415 - optional

    from dumpstream.tables.edgetable import open_edges  # noqa: PLC0415 - needs pyarrow
    from dumpstream.tables.filetable import (  # noqa: PLC0415 - likewise
        alerts_of,
        losses_of,
        open_files,
        processes_of,
    )
    from dumpstream.tables.tensortable import open_tensors  # noqa: PLC0415 - likewise

    for path in paths:
        refuse_missing(path)  # tables of captures alone would be empty
    mentioned = query.lower()
    with ExitStack() as stack:
        spill = stack.enter_context(ScratchDirectory("sql"))
        connection = duckdb.connect(":memory:", config={**_SHUT_IN, "temp_directory": str(spill.path)})
        stack.callback(connection.close)
        views: dict[str, str] = {}
        allowed: list[str] = []
        if any(name in mentioned for name in _OF_TENSORS):
            source = _descriptor(open_tensors(paths, ranks, hosts, told=told), stack, allowed)
            views |= {name: query.format(source) for name, query in _OF_TENSORS.items()}
        if "files" in mentioned:
            views["files"] = f"FROM {_descriptor(open_files(paths, ranks, hosts), stack, allowed)}"
        if "edges" in mentioned:
            views["edges"] = f"FROM {_descriptor(open_edges(paths, ranks, hosts, told), stack, allowed)}"
        connection.execute(f"SET allowed_paths = {allowed}")
        for name, view in views.items():
            connection.execute(f"CREATE VIEW {name} AS {view}")
        connection.register("processes", processes_of(paths, ranks, hosts))
        connection.register("losses", losses_of(paths, ranks, hosts))
        connection.register("alerts", alerts_of(paths, ranks, hosts))
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield Database(connection)


def columns_of_tables() -> dict[str, list[str]]:
    """Return the columns of every table, without making one."""
    require_duckdb()
    from dumpstream.diagnosis.dataflow.graphfile import graph_schema  # noqa: PLC0415 - needs pyarrow
    from dumpstream.statistics.arrow import schema_of  # noqa: PLC0415 - likewise
    from dumpstream.tables.filetable import ALERTS, FILES, LOSSES, PROCESSES  # noqa: PLC0415 - likewise

    return {
        "tensors": schema_of(tuple(COLUMNS)).names,
        "problems": ["file", "problem"],
        "files": FILES.names,
        "processes": PROCESSES.names,
        "losses": LOSSES.names,
        "alerts": ALERTS.names,
        "edges": ["capture", *graph_schema().names],
    }


def _descriptor(fd: int, stack: ExitStack, allowed: list[str]) -> str:
    """Return how a view reads the Parquet file that is open as *fd*, until *stack* closes it."""
    stack.callback(os.close, fd)
    allowed.append(f"/proc/self/fd/{fd}")
    return f"read_parquet('{allowed[-1]}')"


def require_duckdb() -> None:
    """Check that SQL can be asked.

    Raises:
        DumpstreamError: it cannot; the message names the extra that is missing.
    """
    if find_spec("duckdb") is None:
        raise DumpstreamError("SQL needs DuckDB; pip install 'dumpstream[sql]'")
    require_pyarrow()
