"""Rows are written as they come."""

from __future__ import annotations

import io
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.parquet

from dumpstream.comparison.divergence import Finding
from dumpstream.comparison.output.writing import write_csv, write_json, write_msaccucmp, write_parquet
from dumpstream.comparison.summary import summarise
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ROWS = 4000


def _findings(count: int) -> Iterator[Finding]:
    for number in range(count):
        metrics = Metrics(count=4, rel=1.0 / (number + 1), max_abs=number)
        yield Finding(
            ComparisonRow(
                op_name=f"op_{number}", io="output", index=0, verdict=Agreement.CLOSE, metrics=metrics
            )
        )


class _Nowhere(io.StringIO):
    """A file that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


def _peak(write: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        write()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_texts_of_many_rows_take_no_more_memory_than_those_of_few() -> None:
    writers: list[Callable[[int], None]] = [
        lambda count: write_csv(_findings(count), _Nowhere()),
        lambda count: write_msaccucmp(_findings(count), _Nowhere()),
        lambda count: write_json(_findings(count), lambda: summarise({}, None), _Nowhere()),
    ]
    for write in writers:
        write(1)  # what is remembered is remembered

        few, many = _peak(partial(write, 200)), _peak(partial(write, _ROWS))

        assert many < few + 100_000


def test_parquet_is_written_a_group_of_rows_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"

    with path.open("wb") as file:
        write_parquet(_findings(20_000), file)

    found = pyarrow.parquet.ParquetFile(path)
    assert found.metadata.num_rows == 20_000
    assert found.metadata.num_row_groups == 3
    assert found.read(["max_abs_integer"]).column(0)[19_999].as_py() == 19_999
