"""Forged parts: `merge` refuses them in one line, and takes neither memory nor time for them."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dumpstream.cli.commands.compare import _OUTPUT
from dumpstream.engine.part import PartName
from dumpstream.engine.plan import Heading
from dumpstream.reading.verification import NUMBERS

from .jobs import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_KEY = "0123456789abcdef"
_VERIFY: dict[str, Any] = {"command": "verify", "state": "finished", "strangers": [], "json": False}
_COUNTS = json.dumps({**dict.fromkeys(NUMBERS, 0), "state": "finished"})
_COLUMNS = ("kind", "subject", "detail")
_NONE = pa.table({name: pa.array([], pa.binary()) for name in _COLUMNS})


def forge(
    parts: Path,
    table: pa.Table = _NONE,
    *,
    request: Mapping[str, Any] = _VERIFY,
    result: str = _COUNTS,
    heading: str | None = None,
    tasks: int = 1,
) -> Path:
    parts.mkdir()
    name = PartName(_KEY, 1, tasks, "0" * 32)
    heading = heading or Heading(_KEY, 1, tasks, "job", request, version("dumpstream")).to_json()
    with pq.ParquetWriter(parts / str(name), table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"dumpstream.part": heading, "dumpstream.result": result})
    return parts


def repeated(value: bytes, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows), pa.array([value]))


def test_what_is_forged_here_is_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "merge", forge(tmp_path / "parts")).code == 0


def test_a_name_that_says_that_there_are_very_many_tasks_takes_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run(capsys, "merge", forge(tmp_path / "parts", tasks=999_999_999))

    assert ended.code == 1
    assert "of 999999999 parts, 2-999999999 are missing" in ended.err


def test_a_name_with_a_task_that_is_not_in_its_plan_is_not_that_of_a_part() -> None:
    assert PartName.parse(f"part-{_KEY}-3-of-3-{'0' * 32}.parquet") is not None
    assert PartName.parse(f"part-{_KEY}-4-of-3-{'0' * 32}.parquet") is None
    assert PartName.parse(f"part-{_KEY}-0-of-3-{'0' * 32}.parquet") is None


@pytest.mark.parametrize("which", ["heading", "result"])
def test_json_that_is_nested_very_deeply_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    deep: dict[str, Any] = {which: "[" * 200_000}

    ended = run(capsys, "merge", forge(tmp_path / "parts", **deep))

    assert ended.code == 1
    assert "is not a part of this version, or damaged" in ended.err


def test_a_value_that_would_take_much_memory_in_every_row_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = 4000
    long, short = repeated(b"x" * (1 << 20), rows), repeated(b"missing", rows)
    parts = forge(tmp_path / "parts", pa.table({"kind": short, "subject": short, "detail": long}))
    assert sum(it.stat().st_size for it in parts.iterdir()) < 10_000

    ended = run(capsys, "merge", parts)

    assert ended.code == 1
    assert "is not a part of this version, or damaged" in ended.err


def test_very_many_executions_that_were_skipped_take_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = json.dumps([0, 0, 10**15, {"identical": 1}]).encode()
    output = dict.fromkeys(_OUTPUT)
    request = {"command": "compare", "output": output, "notes": []}

    parts = forge(tmp_path / "parts", pa.table({"content": [skipped]}), request=request, result="{}")

    assert run(capsys, "merge", parts).code == 0


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_is_not_a_file_is_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    parts = forge(tmp_path / "parts")
    (part,) = parts.iterdir()
    part.rename(tmp_path / "elsewhere")
    if kind == "fifo":
        os.mkfifo(part)
    else:
        part.symlink_to(tmp_path / "elsewhere")

    ended = run(capsys, "merge", parts)

    assert ended.code == 1
    assert "cannot be opened" in ended.err
