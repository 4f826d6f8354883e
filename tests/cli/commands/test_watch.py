from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import CaptureBuilder, DumpBuilder

RUN = "/dump/20260530164725/0/net/1"
CLEAN = np.zeros((2, 3), np.float32)
TRAMPLED = np.array([[0, 0, 7.5], [0, np.nan, 0]], np.float32)


@pytest.fixture
def run(builder: CaptureBuilder, dump_of: Callable[[str], DumpBuilder]) -> Path:
    """Return a capture in which C was trampled on in iteration 3, and D never was."""
    for iteration in (2, 3):
        after_b = TRAMPLED if iteration == 3 else CLEAN
        dumps = [("A_To_C", 2, -CLEAN), ("C", 3, CLEAN), ("D", 4, CLEAN), ("B_To_C", 5, after_b)]
        for number, (name, task, array) in enumerate([*dumps, ("B_To_D", 5, CLEAN)]):
            data = dump_of(name).output(array).build()
            time = 1780159660000000 + 1000 * iteration + number
            builder.add(f"{RUN}/{iteration}/Relu.{name}.{task}.1.{time}", data, Verdict.COMPLETE)
    return builder.finish()


def watch(*arguments: Any) -> int:
    return main(["watch", *map(str, arguments)])


def watched(capsys: pytest.CaptureFixture[str], *arguments: Any) -> list[dict[str, Any]]:
    watch(*arguments, "--json")
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["watched"]
    return found


def test_trampling_is_reported_with_its_place_and_its_values(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = watch(run)

    assert code == 3
    assert capsys.readouterr().out.splitlines() == [
        "clean      C (Relu), model net, model id 1, iteration 2, device 0: 2 dumps, 1 before it ran",
        "clean      D (Relu), model net, model id 1, iteration 2, device 0: 2 dumps",
        "trampled   C (Relu), model net, model id 1, iteration 3, device 0: 2 dumps, 1 before it ran",
        "  between the dump after C, at 1780159660003001",
        "      and the dump after B, at 1780159660003003",
        "    output 0: float32 [2, 3], 2 of 6 elements changed, [0, 2] to [1, 1]",
        "      [0, 2]: 0 -> 7.5",
        "      [1, 1]: 0 -> nan",
        "    by B, or an operator in between that --ops would name",
        "clean      D (Relu), model net, model id 1, iteration 3, device 0: 2 dumps",
        "2 operators watched in 4 executions, 10 dumps: 1 trampled on, 3 clean",
    ]


def test_order_of_the_graph_names_the_operators_in_between(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ops = tmp_path / "ops.json"
    ops.write_text(json.dumps([{"name": name} for name in ("A", "C", "x/y", "D", "B", "E")]))

    watch(run, "--ops", ops)
    out = capsys.readouterr().out
    _, _, trampled, _ = watched(capsys, run, "--ops", ops)

    assert "    by one of x_y, D, B\n" in out
    (trampling,) = trampled["tramplings"]
    assert (trampling["suspects"], trampling["by_graph"]) == (["x_y", "D", "B"], True)


def test_json_has_everything_with_strings_for_what_is_not_finite(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = watched(capsys, run)

    assert [it["state"] for it in found] == ["clean", "clean", "trampled", "clean"]
    (trampling,) = found[2]["tramplings"]
    assert (trampling["before"]["after"], trampling["after"]["after"]) == ("C", "B")
    (tensor,) = trampling["tensors"]
    assert (tensor["changed"], tensor["elements"], tensor["first"], tensor["last"]) == (2, 6, [0, 2], [1, 1])
    assert tensor["values"][1] == {"place": [1, 1], "before": 0, "after": "NaN"}
    assert found[2]["dumps"][0] == {
        "file": f"{RUN}/3/Relu.C.3.1.1780159660003001",
        "after": "C",
        "timestamp": 1780159660003001,
    }


def test_clean_run_exits_with_0(
    tmp_path: Path, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(["C", "A_To_C", "B_To_C"]):
        (tmp_path / f"Relu.{name}.3.1.{number}").write_bytes(dump_of(name).output(CLEAN).build())

    code = watch(tmp_path)

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "clean      C (Relu): 3 dumps",
        "1 operator watched in 1 execution, 3 dumps: 0 trampled on, 1 clean",
    ]


def test_dump_that_cannot_be_compared_is_reported_and_exits_with_3(
    tmp_path: Path, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(["C", "A_To_C", "B_To_C"]):
        (tmp_path / f"Relu.{name}.3.1.{number}").write_bytes(dump_of(name).output(CLEAN).build())
    (tmp_path / "Relu.A_To_C.3.1.1").write_bytes(b"\0")

    code = watch(tmp_path)

    out, err = capsys.readouterr()
    assert code == 3
    assert "incomplete C (Relu): 3 dumps\n" in out
    assert "Relu.A_To_C.3.1.1: is damaged or not a dump file" in err


@pytest.mark.parametrize("steps", [1, 3])
def test_run_that_watched_nothing_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: int
) -> None:
    for file in Workload(models=1, ops=2, steps=steps, tensor_bytes="64").expected_files("/dump"):
        (tmp_path / file.name.rpartition("/")[2]).write_bytes(file.data)  # all iterations in one directory

    assert watch(tmp_path) == 1
    assert "no operator that was dumped after another one; capture with" in capsys.readouterr().err
    assert watch(tmp_path / "missing") == 1


def test_iterations_in_one_directory_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = Workload.parse("watch,models=1,overwrite=")
    for file in workload.expected_files("/dump"):
        (tmp_path / file.name.rpartition("/")[2]).write_bytes(file.data)

    code = watch(tmp_path)

    assert code == 0
    assert capsys.readouterr().out.endswith(": 0 trampled on, 6 clean\n")


def test_run_of_another_mode_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["capture", "--out", str(tmp_path / "run"), "--simulate", "overflow"])
    capsys.readouterr()

    assert watch(tmp_path / "run") == 1
    assert "run was captured in mode overflow, not watch; capture with" in capsys.readouterr().err


def test_operators_of_layer_after_which_nothing_was_dumped_are_suspects_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "npu").mkdir()
    item = {"layer": ["fused/away", "layer_8_MatMulV2"], "watcher_nodes": ["layer_2_LayerNorm"]}
    dump = {"dump_path": str(tmp_path / "npu"), "dump_scene": "watcher", "dump_list": [item]}
    (tmp_path / "acl.json").write_text(json.dumps({"dump": dump}))
    options = ["--config", str(tmp_path / "acl.json"), "--simulate", "watch,models=1,steps=2"]
    main(["capture", "--out", str(tmp_path / "run"), *options])
    capsys.readouterr()

    (_, trampled) = watched(capsys, tmp_path / "run")
    watch(tmp_path / "run")

    assert trampled["tramplings"][0]["suspects"] == ["layer_8_MatMulV2", "fused_away"]
    assert "    by layer_8_MatMulV2, fused_away, or an operator in between" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{}", None], ids=["no list", "no file"])
def test_file_that_is_not_a_list_of_operators_is_an_error(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    ops = tmp_path / "ops.json"
    if text is not None:
        ops.write_text(text)

    assert watch(run, "--ops", ops) == 1
    assert capsys.readouterr().err.startswith("dumpstream: ")


def test_writer_of_a_simulated_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload.parse("watch")
    (tmp_path / "ops.json").write_text(workload.graph())
    main(["capture", "--out", str(tmp_path / "run"), "--simulate", "watch"])
    capsys.readouterr()

    found = watched(capsys, tmp_path / "run", "--ops", tmp_path / "ops.json")

    assert len(found) == workload.models * workload.steps * 2
    trampled = {(it["model"], it["iteration"], it["op_name"]) for it in found if it["state"] == "trampled"}
    assert trampled == {(f"transformer_{model}", 1, "layer_2_LayerNorm") for model in range(workload.models)}
    assert {it["state"] for it in found} == {"trampled", "clean"}
    suspects = [one["suspects"] for it in found for one in it["tramplings"]]
    assert all(names[-1] == "layer_7_Cast" for names in suspects)
