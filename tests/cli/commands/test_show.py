from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard

from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder, DumpBuilder

NAME = "Conv2D.conv1.4.65535.1780159660546556"
FLOATS = np.array([[1, 2, np.nan], [4, -np.inf, 0]], np.float32)


@pytest.fixture
def file(tmp_path: Path, dump: DumpBuilder) -> Path:
    path = tmp_path / "20260530164725/3/resnet/7/12" / NAME
    path.parent.mkdir(parents=True)
    missing = np.zeros(5, np.int32)
    path.write_bytes(dump.input(FLOATS).output(missing, address=0).attribute("pad", "same").build())
    return path


def show(*arguments: Any) -> int:
    return main(["show", *map(str, arguments)])


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any) -> dict[str, Any]:
    show(*arguments, "--json")
    described: dict[str, Any] = json.loads(capsys.readouterr().out)
    return described


def test_operator_and_tensors_are_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = show(file)

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        str(file),
        "  operator   conv1 (Conv2D), model resnet, model id 7, iteration 12, device 3, task 4, stream 65535",
        "  dumped     2026-05-30 16:47:40.546556 UTC",
        f"  contents   {file.stat().st_size} B, 2 tensors, version 2.0",
        "  attribute  pad: same",
        "",
        "input 0: float32 [2, 3], ND, 24 B",
        "  count 6  max NaN  min NaN  mean NaN  std NaN  l2norm NaN",
        "  nan 1  neg_inf 1  zero 1  negative 1",
        "  0 |█           █           █                      █| 4",
        "  1 2 NaN 4 -Infinity 0",
        "",
        "output 0: int32 [5], ND, 20 B, not dumped",
    ]


def test_json_has_everything_with_strings_for_what_is_not_finite(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described = shown(capsys, file)

    first, second = described["tensors"]
    assert (described["op_name"], described["op_type"], described["iteration"]) == ("conv1", "Conv2D", 12)
    assert described["attributes"] == [{"name": "pad", "value": "same"}]
    assert (first["io"], first["dtype"], first["shape"]) == ("input", "float32", [2, 3])
    assert (first["statistics"]["max"], first["statistics"]["nan"]) == ("NaN", 1)
    assert first["statistics"]["finite_max"] == 4
    assert first["first"] == [1, 2, "NaN", 4, "-Infinity", 0]
    assert sum(first["histogram"]["counts"]) == 4
    assert (second["start"], second["statistics"]) == (None, None)


def test_values_of_a_large_tensor_are_its_first_and_last(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_bytes(dump.output(np.arange(1000, dtype=np.int32)).build())

    show(path)

    assert "  0 1 2 3 4 5 6 7 ... 996 997 998 999\n" in capsys.readouterr().out


def test_histogram_shows_what_is_not_zero_in_a_tensor_that_mostly_is(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    array = np.zeros(10_000, np.float32)
    array[:480] = np.repeat(np.arange(1, 49), 10)  # as behind a ReLU
    path = tmp_path / NAME
    path.write_bytes(dump.output(array).build())

    assert show(path) == 0

    out = capsys.readouterr().out
    assert "  9520 zeros (95 %), the others:\n" in out
    bars = re.search(r"  0 \|(.*)\| 48\n", out)
    assert bars
    assert bars[1].count("▄") == 46


def test_tensor_of_zeros_has_no_histogram(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_bytes(dump.output(np.zeros(4, np.int32)).build())

    assert show(path) == 0

    assert "  4 zeros (100 %), nothing else\n" in capsys.readouterr().out


def test_terminal_without_the_characters_gets_plain_ones(file: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dumpstream", "show", str(file)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )

    assert b"  0 |@ " in run.stdout
    assert b"\\u2588" not in run.stdout


@pytest.mark.parametrize("name", [f"/dump//0/{NAME}", "*conv1*"])
def test_file_of_a_capture_is_found_by_name_or_pattern(
    file: Path, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    builder.add(f"/dump//0/{NAME}", file.read_bytes(), Verdict.COMPLETE)
    builder.add("B.b.1.2.3", b"text")

    described = shown(capsys, builder.finish(), name)

    assert described["file"] == f"/dump//0/{NAME}"
    assert described["verdict"] == "complete"
    assert described["problem"] is None


def test_several_files_that_match_are_listed(
    file: Path, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("A.a.1.2.3", "A.b.1.2.3"):
        builder.add(name, file.read_bytes(), Verdict.COMPLETE)
    path = builder.finish()

    assert show(path, "A.*") == 0
    assert capsys.readouterr().out.splitlines() == [
        "verdict      bytes  name",
        "complete      96 B  A.a.1.2.3",
        "complete      96 B  A.b.1.2.3",
        "2 files match; name one of them to see it",
    ]
    assert show(path, "A.a.1.2.3", "A.b.*", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "matches": [
            {"name": "A.a.1.2.3", "bytes": 96, "verdict": "complete"},
            {"name": "A.b.1.2.3", "bytes": 96, "verdict": "complete"},
        ]
    }
    assert show(path, "C*") == 1
    assert "no file matches 'C*'" in capsys.readouterr().err


def test_name_belongs_to_a_capture_and_a_capture_needs_one(file: Path, builder: CaptureBuilder) -> None:
    assert show(file, "name") == 2
    assert show(builder.finish()) == 2


def test_damaged_tensor_has_a_problem_and_the_others_are_shown(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_bytes(dump.input(FLOATS).output(FLOATS).build()[:-1])

    code = show(path)

    out = capsys.readouterr().out
    assert code == 3
    assert "1 2 NaN 4 -Infinity 0" in out
    assert "  problem: ends inside output 0, which needs 1 bytes more" in out


def test_file_that_came_incomplete_is_reported_with_its_verdict(
    file: Path, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add(NAME, file.read_bytes(), Verdict.NEVER_CLOSED)
    builder.add("B.b.1.2.3", b"", Verdict.LOST)
    path = builder.finish()

    assert show(path, NAME) == 3
    assert "  problem    is not whole (never_closed)" in capsys.readouterr().out
    assert show(path, "B.b.1.2.3") == 1
    assert "B.b.1.2.3 is not whole (lost); " in capsys.readouterr().err


def test_part_that_does_not_match_its_checksum_is_a_problem(
    tmp_path: Path, dump: DumpBuilder, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add(NAME, dump.output(np.frombuffer(os.urandom(1000), np.uint8)).build(), Verdict.COMPLETE)
    damaged = bytearray((builder.path / f"files/{NAME}.zst").read_bytes())
    damaged[500] ^= 1
    (builder.path / f"files/{NAME}.zst").write_bytes(damaged)

    code = show(builder.finish(), NAME)

    assert code == 3
    assert "does not match its checksum" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Opdebug.Node_OpDebug.5.1.1780159660546556", "renamed"])
def test_overflow_record_is_decoded(
    tmp_path: Path, overflow_dump: DumpBuilder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    record = bytearray(2048)
    struct.pack_into("<6Q", record, 256, 1, 2, 3, 4, 0xABC, 0xDEF)
    path = tmp_path / name
    path.write_bytes(overflow_dump.output(np.frombuffer(record, np.uint8)).build())

    described = shown(capsys, path)
    show(path)

    assert described["overflow"]["ai_core"]["task_id"] == 3
    assert described["overflow"]["ai_core"]["pc_start"] == "0xabc"
    assert "  overflow   ai_core: model_id 1, stream_id 2, task_id 3" in capsys.readouterr().out


def test_overflow_record_that_is_too_short_is_a_problem(
    tmp_path: Path, overflow_dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Opdebug.Node_OpDebug.5.1.1780159660546556"
    path.write_bytes(overflow_dump.output(np.zeros(100, np.uint8)).build())

    code = show(path)

    assert code == 3
    assert "problem: has an overflow record that ends before its status" in capsys.readouterr().out


def test_exception_dump_shows_kinds_and_message(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "exception_info.2.7.20260530164725123"
    data = np.arange(4, dtype=np.uint8)
    for kind, argument in ((2, 0), (2, 1), (7, 3)):
        dump.input(data, arg_index=argument, input_type=kind)
    dump.output(data, arg_index=2).space(bytes(9), arg_index=2**32 - 1)
    path.write_bytes(dump.message("aicore error\n\x1b[1mpc 0x10").build())

    code = show(path)

    out = capsys.readouterr().out
    assert code == 0
    assert "  exception  brief dump: 2 input, 1 tiling_data, 1 output, 1 workspace\n" in out
    assert "  message    aicore error\n  message    \\x1b[1mpc 0x10\n" in out
    assert "input 0: uint8 [4], ND, input, argument 0, 4 B\n" in out
    assert "input 2: uint8 [4], ND, tiling_data, argument 3, 4 B\n" in out
    assert "output 0: uint8 [4], ND, output, argument 2, 4 B\n" in out
    assert "space 0: undefined [], NCHW, workspace, 9 B\n" in out


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("exception_info.2.7.20260530164725123", "brief"),
        ("MatMulV2.mm.7.20260530164725123", "norm"),
        ("exception_info.2.7.1.13.20260530164725123", "core"),
        ("mine.custom.20260530164725123", "custom"),
        ("renamed", None),
    ],
)
def test_name_of_an_exception_dump_tells_how_it_was_written(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str], name: str, scene: str | None
) -> None:
    path = tmp_path / "extra-info/data-dump/0" / name
    path.parent.mkdir(parents=True)
    dump.input(np.zeros(4, np.uint8), input_type=101).attribute("user_tag", "before the loop")
    path.write_bytes(dump.build())

    exception = shown(capsys, path)["exception"]

    assert (exception["scene"], exception["segments"]) == (scene, {"args": 1})
    assert exception["core_id"] == (13 if scene == "core" else None)
    assert exception["user_tag"] == "before the loop"


def test_other_dumps_have_no_kinds(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = shown(capsys, file)

    assert "exception" not in described
    assert [tensor["kind"] for tensor in described["tensors"]] == [None, None]


def test_core_file_is_referred_to_the_debugger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "te_matmul.2.7.20260530164725123.core"
    path.write_bytes(b"\x7fELF" + bytes(60))

    assert show(path) == 1
    assert "is the core file of a detail dump; load it into CANN's debugger" in capsys.readouterr().err


def test_statistics_text_is_referred_to_the_command_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{NAME}.csv"
    path.write_text("Input/Output,Index\n")

    assert show(path) == 1
    assert "is statistics text; read it with `dumpstream stats`" in capsys.readouterr().err


def test_what_is_compressed_does_not_have_to_fit_into_memory(
    tmp_path: Path, dump: DumpBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    array = np.zeros(24 << 20, np.float32)  # more than is held
    array[[0, -1]] = -1, 3
    path = tmp_path / f"{NAME}.zst"
    path.write_bytes(zstandard.compress(dump.input(array).build(), 1))

    tracemalloc.start()
    described = shown(capsys, path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < array.nbytes // 2
    (tensor,) = described["tensors"]
    assert (tensor["first"][:2], tensor["last"]) == ([-1, 0], [0, 0, 0, 3])
    assert (tensor["statistics"]["zero"], tensor["histogram"]["zeros"]) == (array.size - 2, array.size - 2)
    assert sum(tensor["histogram"]["counts"]) == 2


@pytest.mark.parametrize("names", [[], ["*"]])
def test_a_path_that_is_missing_is_said_so_whatever_is_asked_of_it(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / "nothing"), *names]) == 1
    assert "nothing does not exist; name a capture" in capsys.readouterr().err

    assert main(["show", str(tmp_path / ("n" * 300)), *names]) == 1
    assert "cannot be read: File name too long" in capsys.readouterr().err
