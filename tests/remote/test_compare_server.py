"""Runs in a real S3 server, compared with runs on the disk and with each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.conftest import CaptureBuilder, DumpBuilder

from dumpstream import compare
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.objectstore.store import Store

from .test_reading_server import copy

if TYPE_CHECKING:
    from pathlib import Path

    from .bucket import Bucket

pytestmark = pytest.mark.stores

_RUN = "/dump/20260530164725/0/net/1"
_LARGE = 6 << 18  #: elements: more than one request brings


def captured(path: Path, *, changed: float = 1.0) -> Path:
    """Leave a capture of two steps; the output of the last operator is *changed*."""
    builder = CaptureBuilder(path)
    for step in range(2):
        for number in range(3):
            size = _LARGE if number == 1 else 6
            inputs = np.full(size, number, np.float32)
            outputs = np.full(size, changed if (step, number) == (1, 2) else 1.0, np.float32)
            dump = DumpBuilder(f"op_{number}").input(inputs, address=7).output(outputs, address=8)
            name = f"{_RUN}/{step}/Relu.op_{number}.{number}.1.{1780159660000000 + 10 * step + number}"
            builder.add(name, dump.build(), Verdict.COMPLETE)
    return builder.finish()


def rows_of(mine: object, golden: object) -> list[Any]:
    with compare(str(mine), str(golden)) as comparison:
        return [(row.op_name, row.step, row.io, row.verdict, row.role, row.metrics) for row in comparison]


def test_a_run_in_a_store_is_compared_as_one_on_the_disk(tmp_path: Path, bucket: Bucket) -> None:
    mine, golden = captured(tmp_path / "mine", changed=3.0), captured(tmp_path / "golden")
    copy(golden, bucket)
    known = rows_of(mine, golden)
    assert [row[:4] for row in known if row[3] == "different"] == [("op_2", 1, "output", "different")]
    assert rows_of(mine, bucket.url) == known
    assert [row[:4] for row in rows_of(bucket.url, mine) if row[3] != "identical"] == [
        ("op_2", 1, "output", "different")
    ]


def test_a_copy_in_a_store_is_known_to_be_identical_without_its_tensors(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = captured(tmp_path / "mine")
    copy(mine, bucket)
    asked: list[str] = []
    get_range = Store.get_range

    def noting(store: Store, key: str, start: int, length: int) -> Any:
        asked.append(key)
        return get_range(store, key, start, length)

    monkeypatch.setattr(Store, "get_range", noting)
    assert {row[3] for row in rows_of(mine, bucket.url)} == {"identical"}
    assert "journal.jsonl" in asked
    assert {*asked} <= {"journal.jsonl", "manifest.json", "lock.json"}


def test_the_command_takes_urls_for_both_sides(
    tmp_path: Path, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(captured(tmp_path / "mine"), bucket)
    assert main(["compare", bucket.url, bucket.url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["identical"] == len(found["rows"]) == 12


def test_a_prefix_without_a_capture_is_one_line(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", bucket.url, bucket.url]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert bucket.url in line
