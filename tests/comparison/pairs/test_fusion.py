"""The fusion file of GE: which outputs of the golden a compiled graph has; files that are not one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.comparison.runs import Dumped, compared, pairs_of, shown, write
from tests.conftest import DumpBuilder

from dumpstream import DumpstreamError, compare
from dumpstream.comparison.pairs.fusion import Output, read_fusion
from dumpstream.comparison.pairs.pairing import PairingOptions

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream.comparison.execution import Pair


def attribute(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def originals(*names: str) -> dict[str, Any]:
    listed = {"s": list(names)} if names else {}
    return attribute("_datadump_original_op_names", list={"val_type": 1, **listed})


def output(name: str, **index: int) -> dict[str, Any]:
    return {
        "attr": [
            attribute("_datadump_origin_name", s=name),
            attribute("_datadump_origin_output_index", **index),
        ]
    }


#: data -> (trans, put in by the compiler) -> conv1 + bn1 + relu1 -> fc, which was left alone
GRAPH = [
    {"name": "data", "type": "Data", "attr": [originals("data")], "output_desc": [output("data", i=0)]},
    {"name": "trans", "type": "TransData", "attr": [originals()], "input": ["data:0"]},
    {
        "name": "scope/conv1relu1",
        "type": "Conv2D",
        "attr": [originals("scope/conv1", "scope/bn1", "scope/relu1")],
        "input": ["trans:0", "control:-1"],
        "output_desc": [output("scope/relu1")],
    },
    {"name": "fc", "type": "MatMul", "attr": [originals("fc")], "input": ["scope/conv1relu1:0"]},
]


@pytest.fixture
def fusion_file(tmp_path: Path) -> Path:
    path = tmp_path / "fusion.json"
    path.write_text(json.dumps({"name": "net", "graph": [{"name": "sub", "op": GRAPH}]}))
    return path


def test_an_output_stands_for_that_of_the_last_original(fusion_file: Path) -> None:
    fusion = read_fusion(fusion_file)
    assert fusion.golden_output("scope_conv1relu1", 0) == Output("scope_relu1", 0)
    assert fusion.golden_output("scope_conv1relu1", 1) == Output("scope_relu1", 1)
    assert fusion.golden_output("trans", 0) is None
    assert fusion.golden_output("unknown", 0) is None


def test_an_input_stands_for_the_output_before_it_across_what_the_compiler_put_in(fusion_file: Path) -> None:
    fusion = read_fusion(fusion_file)
    assert fusion.golden_input("scope_conv1relu1", 0) == Output("data", 0)
    assert fusion.golden_input("scope_conv1relu1", 1) is None
    assert fusion.golden_input("fc", 0) == Output("scope_relu1", 0)


def test_a_graph_that_feeds_itself_ends(tmp_path: Path) -> None:
    path = tmp_path / "fusion.json"
    ring = [
        {"name": "a", "attr": [originals()], "input": ["b:0"]},
        {"name": "b", "attr": [originals()], "input": ["a:0"]},
    ]
    path.write_text(json.dumps({"graph": [{"op": ring}]}))
    assert read_fusion(path).golden_input("a", 0) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("layer -> other", "is not JSON"),
        ("{}", "is not a fusion file: it has no graph of operators; make one with atc"),
        ("[]", "is not a fusion file"),
        ('{"graph": {"op": []}}', "is not a fusion file"),
        ('{"graph": [{"op": [{"type": "Add"}, 3]}, 7]}', "is not a fusion file"),
        ("1" * 5000, "is not JSON|is not a fusion file"),
    ],
)
def test_something_else_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "fusion.json"
    path.write_text(text)
    with pytest.raises(DumpstreamError, match=problem):
        read_fusion(path)


def test_what_cannot_be_understood_in_a_graph_is_left_out(tmp_path: Path) -> None:
    strange = [
        {
            "name": "a",
            "attr": 3,
            "input": "b",
            "output_desc": [None, {"attr": [{"key": 1}]}, output("x", i=-4)],
        },
        {"name": "b", "attr": [{"key": "_datadump_original_op_names", "value": {"list": [1]}}]},
        {"name": "c", "attr": [originals("y", "")], "input": [1, "a", ":0", "a:999999999999"]},
    ]
    path = tmp_path / "fusion.json"
    path.write_text(json.dumps({"graph": [{"op": strange}]}))
    fusion = read_fusion(path)
    assert fusion.golden_output("a", 2) == Output("x", 0)
    assert fusion.golden_output("b", 0) is None
    assert fusion.golden_output("c", 0) == Output("y", 0)
    assert fusion.golden_input("c", 0) is None


def save(directory: Path, *names: str) -> Path:
    directory.mkdir()
    for number, name in enumerate(names):
        np.save(directory / f"{name}.0.{1780159660000000 + number}.npy", np.ones((2, 3), np.float32))
    return directory


def described(pair: Pair) -> tuple[str | None, str | None]:
    golden = None if pair.golden is None else pair.golden.identity.op_name
    return shown(pair.mine), golden


def test_a_compiled_graph_is_compared_with_the_outputs_of_the_original(
    tmp_path: Path, fusion_file: Path
) -> None:
    mine = write(
        tmp_path / "mine",
        [
            Dumped("TransData", "trans", 0),
            Dumped("Conv2D", "scope_conv1relu1", 1),
            Dumped("MatMul", "fc", 2),
        ],
    )
    golden = save(tmp_path / "golden", "data", "scope_conv1", "scope_bn1", "scope_relu1", "fc")
    executions, _ = compared(mine, golden, PairingOptions(fusion=read_fusion(fusion_file), guess=False))
    pairs = pairs_of(executions)
    assert {described(pair) for pair in pairs} == {
        ("trans input 0 at 0", "data"),
        ("trans output 0 at 0", None),
        ("scope_conv1relu1 input 0 at 1", "data"),
        ("scope_conv1relu1 output 0 at 1", "scope_relu1"),
        ("fc input 0 at 2", "scope_relu1"),
        ("fc output 0 at 2", "fc"),
        (None, "scope_conv1"),
        (None, "scope_bn1"),
    }
    reasons = {pair.golden.identity.op_name: pair.reason for pair in pairs if pair.golden and not pair.mine}
    assert reasons["scope_bn1"] == "mine has it fused into scope_conv1relu1"
    alone = next(pair for pair in pairs if shown(pair.mine) == "trans output 0 at 0")
    assert alone.reason == "the golden has no such operator"


def test_a_golden_output_that_is_compared_with_an_input_is_not_alone_as_well(
    tmp_path: Path, fusion_file: Path
) -> None:
    mine = write(tmp_path / "mine", [Dumped("Conv2D", "scope_conv1relu1", 1)])
    golden = save(tmp_path / "golden", "data", "scope_conv1", "scope_relu1")
    executions, _ = compared(mine, golden, PairingOptions(fusion=read_fusion(fusion_file), guess=False))
    pairs = pairs_of(executions)
    assert [described(pair)[1] for pair in pairs if pair.mine is not None] == ["data", "scope_relu1"]
    alone = [described(pair)[1] for pair in pairs if pair.mine is None]
    assert alone == ["scope_conv1"]  # data is in the pair of the input
    assert all(execution.pairs for execution in executions)


def test_the_order_of_axes_of_the_original_is_that_of_the_golden(tmp_path: Path) -> None:
    described_output = output("conv")
    described_output["attr"].append(attribute("_datadump_origin_format", s="NHWC"))
    operators = [{"name": "conv", "attr": [originals("conv")], "output_desc": [described_output]}]
    path = tmp_path / "fusion.json"
    path.write_text(json.dumps({"graph": [{"op": operators}]}))
    array = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    directory = tmp_path / "mine"
    directory.mkdir()
    dump = DumpBuilder("conv").output(array, form=0)
    (directory / "Conv2D.conv.1.2.1780159660000000").write_bytes(dump.build())
    (tmp_path / "golden").mkdir()
    np.save(tmp_path / "golden" / "conv.0.1780159660000000.npy", array.transpose(0, 2, 3, 1))
    with compare(directory, tmp_path / "golden", fusion=path) as comparison:
        (row,) = comparison
    assert row.verdict == "identical"
