"""Rows of a comparison as JSON and csv, written as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from typing import IO, TextIO

from dumpstream.comparison.divergence import Finding
from dumpstream.comparison.output.msaccucmp import MsaccucmpCsv
from dumpstream.comparison.output.parquet import ComparisonParquet
from dumpstream.comparison.summary import Summary
from dumpstream.comparison.table import COLUMNS, csv_row, json_row


def write_json(findings: Iterable[Finding], summary: Callable[[], Summary], file: TextIO) -> None:
    """Write one JSON object: the rows, and behind them the *summary*, which is known only then."""
    file.write('{\n"rows": [')
    separator = "\n"
    for finding in findings:
        file.write(f"{separator}{json.dumps(json_row(finding.row))}")
        separator = ",\n"
    file.write(f'\n],\n"summary": {json.dumps(summary().as_json(), indent=2)}\n}}\n')


def write_csv(findings: Iterable[Finding], file: TextIO) -> None:
    """Write titles, and a line for each row."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(csv_row(finding.row) for finding in findings)


def write_msaccucmp(findings: Iterable[Finding], file: TextIO) -> None:
    """Write the csv of CANN's own tool."""
    writer = MsaccucmpCsv(file)
    for finding in findings:
        writer.write(finding)


def write_parquet(findings: Iterable[Finding], file: IO[bytes]) -> None:
    """Write a Parquet file, a few thousand rows at a time."""
    writer = ComparisonParquet(file)
    try:
        for finding in findings:
            writer.write(finding.row)
        writer.close()
    except BaseException:
        writer.discard()
        raise
