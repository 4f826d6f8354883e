from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from tests.conftest import CaptureBuilder, DumpBuilder

RUN = "/dump/20260530164725/0/net/1"
LARGE = np.array([60000, 2], np.float32)
INFINITE = np.array([np.inf, 4], np.float32)

ADDRESSES = "pc_start 0x1000, para_base 0x2000"
AIV = f"task_type 0, context_id 0, thread_id 0, {ADDRESSES}, core_id 5, block_id 6, status 8"
AI_CORE = f"task_type 0, {ADDRESSES}, kernel_code 0x3000, block_idx 6, status 8"
TENSORS = [
    "   io      index  dtype    shape  count  nan  pos_inf  neg_inf  finite_max  finite_min",
    "   input       0  float32  2          2    0        0        0       60000           2",
    "   output      0  float32  2          2    0        1        0           4           4",
]


def newer_record(stream: int, task: int) -> NDArray[np.uint8]:
    words = [1, stream, task, 0, 0, 0, 0x1000, 0x2000, 5, 6, 8]
    head = struct.pack("<6I", 0x5A5A5A5A, 1, 1, 1, 0, 8 * len(words))
    return np.frombuffer((head + struct.pack("<11Q", *words)).ljust(2048, b"\0"), np.uint8)


def older_record(stream: int, task: int) -> NDArray[np.uint8]:
    record = bytearray(2048)
    struct.pack_into("<6Q", record, 256, 1, stream, task, 0, 0x1000, 0x2000)
    struct.pack_into("<3Q", record, 1024, 0x3000, 6, 8)
    return np.frombuffer(record, np.uint8)


@pytest.fixture
def run(builder: CaptureBuilder, dump_of: Callable[[str], DumpBuilder]) -> Path:
    """Return a capture in which m overflowed in two iterations, and half of two others is missing."""

    def add(name: str, data: DumpBuilder) -> None:
        builder.add(f"{RUN}/{name}", data.build(), Verdict.COMPLETE)

    def opdebug(record: NDArray[np.uint8]) -> DumpBuilder:
        return dump_of("Node_OpDebug").output(record)

    add("0/Opdebug.Node_OpDebug.40.3.1780159660000012", opdebug(newer_record(stream=2, task=7)))
    add("0/Mul.m.7.2.1780159660000010", dump_of("m").input(LARGE).output(INFINITE))
    add("1/Mul.m.7.2.1780159660000020", dump_of("m").input(LARGE).output(INFINITE))
    add("1/Opdebug.Node_OpDebug.40.3.1780159660000022", opdebug(older_record(stream=2, task=7)))
    add("1/Opdebug.Node_OpDebug.40.3.1780159660000030", opdebug(newer_record(stream=2, task=9)))
    add("1/Add.a.40.3.1780159660000040", dump_of("a").output(LARGE))
    return builder.finish()


def overflow(*arguments: Any) -> int:
    return main(["overflow", *map(str, arguments)])


def test_operators_are_listed_in_order_with_record_and_tensors(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = overflow(run)

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "1. m (Mul), model net, model id 1, iteration 0, device 0, task 7, stream 2",
        "   dumped 2026-05-30 16:47:40.000010 UTC",
        f"   record {RUN}/0/Opdebug.Node_OpDebug.40.3.1780159660000012",
        f"   AIV: model_id 1, stream_id 2, task_id 7, {AIV}",
        *TENSORS,
        "2. m (Mul), model net, model id 1, iteration 1, device 0, task 7, stream 2",
        "   dumped 2026-05-30 16:47:40.000020 UTC",
        f"   record {RUN}/1/Opdebug.Node_OpDebug.40.3.1780159660000022",
        f"   ai_core: model_id 1, stream_id 2, task_id 7, {AI_CORE}",
        *TENSORS,
        "3. an operator without files, model net, model id 1, iteration 1, device 0, task 9, stream 2",
        "   dumped 2026-05-30 16:47:40.000030 UTC",
        f"   record {RUN}/1/Opdebug.Node_OpDebug.40.3.1780159660000030",
        f"   AIV: model_id 1, stream_id 2, task_id 9, {AIV}",
        "4. a (Add), model net, model id 1, iteration 1, device 0, task 40, stream 3",
        "   dumped 2026-05-30 16:47:40.000040 UTC",
        "   no record",
        "   io      index  dtype    shape  count  nan  pos_inf  neg_inf  finite_max  finite_min",
        "   output      0  float32  2          2    0        0        0       60000           2",
        "4 overflows; 1 record without files; 1 operator without a record",
    ]


def test_json_has_everything(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overflow(run, "--json")

    found = json.loads(capsys.readouterr().out)
    first, _, third, fourth = found["overflows"]
    assert found["problems"] == []
    assert (first["op_name"], first["task"], first["iteration"]) == ("m", 7, 0)
    assert first["record"]["units"]["AIV"]["core_id"] == 5
    assert first["record"]["decoded"]["entry"]["accelerator"] == "AIV"
    assert [(it["io"], it["max"]) for it in first["tensors"]] == [("input", 60000), ("output", "Infinity")]
    assert (third["op_name"], third["task"], third["stream"], third["tensors"]) == (None, 9, 2, [])
    assert (fourth["op_name"], fourth["record"]) == ("a", None)


def test_directory_that_cann_wrote_is_read(
    tmp_path: Path, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "20260530164725/0/net/1/0"
    directory.mkdir(parents=True)
    record = dump_of("Node_OpDebug").output(older_record(stream=2, task=7))
    (directory / "Opdebug.Node_OpDebug.40.3.1780159660000012").write_bytes(record.build())
    operator = dump_of("m").output(INFINITE)
    (directory / "Mul.m.7.2.1780159660000010").write_bytes(operator.build())

    code = overflow(tmp_path)

    out = capsys.readouterr().out
    assert code == 0
    assert out.startswith("1. m (Mul), model net, model id 1, iteration 0")
    assert out.endswith("\n1 overflow\n")


def test_run_without_files_has_no_overflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert overflow(tmp_path) == 0
    assert capsys.readouterr().out == "no overflow\n"


def test_record_that_cannot_be_read_is_reported_and_exits_with_3(
    tmp_path: Path, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    short = dump_of("Node_OpDebug").output(np.zeros(99, np.uint8)).build()
    (tmp_path / "Opdebug.Node_OpDebug.40.3.1780159660000012").write_bytes(short)

    code = overflow(tmp_path)

    out, err = capsys.readouterr()
    assert code == 3
    assert out == "no overflow\n"
    assert "Opdebug.Node_OpDebug.40.3.1780159660000012: has an overflow record that ends before" in err


def test_operator_file_that_cannot_be_read_is_reported_and_exits_with_3(
    tmp_path: Path, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Mul.m.7.2.1780159660000010").write_bytes(dump_of("m").output(INFINITE).build()[:-1])

    code = overflow(tmp_path)

    out, err = capsys.readouterr()
    assert code == 3
    assert out.startswith("1. m (Mul), task 7, stream 2")
    assert "output 0 has 7 of its 8 bytes" in err


def test_path_with_nothing_is_an_error(tmp_path: Path) -> None:
    assert overflow(tmp_path / "missing") == 1


@pytest.mark.parametrize(("layout", "unit"), [("older", "ai_core"), ("newer", "AIC")])
def test_every_overflow_of_a_simulated_run_has_its_record_and_its_tensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str, unit: str
) -> None:
    main(["capture", "--out", str(tmp_path / "run"), "--simulate", f"overflow,opdebug={layout}"])
    capsys.readouterr()

    code = overflow(tmp_path / "run", "--json")

    found = json.loads(capsys.readouterr().out)["overflows"]
    assert code == 0
    assert found
    for it in found:
        numbers = it["record"]["units"][unit]
        assert (numbers["task_id"], numbers["stream_id"]) == (it["task"], it["stream"])
        assert numbers["model_id"] == it["model_id"]
        assert f"/{it['iteration']}/Opdebug" in it["record"]["file"]
        outputs = [tensor for tensor in it["tensors"] if tensor["io"] == "output"]
        assert it["tensors"][0]["io"] == "input"
        assert any(tensor["pos_inf"] + tensor["nan"] > 0 for tensor in outputs)
    assert found[0]["tensors"][-1]["pos_inf"] > 0


def test_run_of_another_mode_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["capture", "--out", str(tmp_path / "run"), "--simulate", "ops=1,tensor_bytes=64"])
    capsys.readouterr()

    assert overflow(tmp_path / "run") == 1
    assert "run was captured in mode model and op, not overflow; capture with" in capsys.readouterr().err


def test_operators_of_a_run_without_records_are_not_counted_as_overflows(
    tmp_path: Path, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Add.a.40.3.1780159660000040").write_bytes(dump_of("a").output(LARGE).build())

    assert overflow(tmp_path) == 0
    assert capsys.readouterr().out.endswith(
        "no record of an overflow; 1 operator overflowed if the run had dump_debug on\n"
    )
