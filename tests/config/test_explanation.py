"""What is said about a configuration, and where exception dumps land."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dumpstream.config import DumpSettings, explain, landings, switched_on_by

if TYPE_CHECKING:
    from pathlib import Path


def settings(**values: Any) -> DumpSettings:
    return DumpSettings.model_validate(values)


EXCEPTION = settings(dump_scene="aic_err_brief_dump", dump_path="/conf")


def chosen(values: DumpSettings, **environment: str) -> list[str]:
    return [landing.chosen.name for landing in landings(values, environment)]


def test_without_variables_exception_dumps_land_in_dump_path() -> None:
    source, documents = landings(EXCEPTION, {})

    assert source.directory == documents.directory == "/conf/extra-info/data-dump"


def test_without_anything_they_land_in_the_current_directory() -> None:
    source, documents = landings(settings(dump_scene="lite_exception"), {})

    assert source.directory == documents.directory == "./extra-info/data-dump"


def test_source_and_documents_have_orders_of_their_own(tmp_path: Path) -> None:
    place = str(tmp_path)

    assert chosen(EXCEPTION, ASCEND_DUMP_PATH=place, ASCEND_WORK_PATH=place, NPU_COLLECT_PATH=place) == [
        "ASCEND_DUMP_PATH",
        "NPU_COLLECT_PATH",
    ]
    assert chosen(EXCEPTION, ASCEND_WORK_PATH=place, NPU_COLLECT_PATH=place) == [
        "ASCEND_WORK_PATH",
        "NPU_COLLECT_PATH",
    ]
    assert chosen(EXCEPTION, ASCEND_WORK_PATH=place) == ["ASCEND_WORK_PATH", "ASCEND_WORK_PATH"]
    assert chosen(EXCEPTION, ASCEND_DUMP_PATH=place) == ["ASCEND_DUMP_PATH", "dump_path"]


def test_an_empty_variable_does_not_count() -> None:
    source, _ = landings(EXCEPTION, {"ASCEND_DUMP_PATH": ""})

    assert source.candidates[0].rejected == "set, but empty"
    assert source.chosen.name == "dump_path"


def test_the_source_passes_over_what_it_cannot_make(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert chosen(EXCEPTION, ASCEND_WORK_PATH=str(file)) == ["dump_path", "ASCEND_WORK_PATH"]
    assert chosen(EXCEPTION, ASCEND_WORK_PATH=str(tmp_path / "new/place"))[0] == "ASCEND_WORK_PATH"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"ASCEND_DUMP_SCENE": "aic_err_detail_dump"}, ("ASCEND_DUMP_SCENE", "aic_err_detail_dump")),
        ({"ASCEND_DUMP_SCENE": "watcher"}, None),
        ({"NPU_COLLECT_PATH": "/x"}, ("NPU_COLLECT_PATH", "aic_err_norm_dump")),
        ({"NPU_COLLECT_PATH": ""}, None),
    ],
)
def test_variables_switch_exception_dumps_on(
    environment: dict[str, str], expected: tuple[str, str] | None
) -> None:
    assert switched_on_by(environment) == expected


def test_nothing_is_explained_as_nothing() -> None:
    what, where, cost = explain(settings(), {})

    assert what == ("Nothing is dumped; a registered callback alone does not change that.",)
    assert (where, cost) == ((), ())


def test_model_dump_is_explained() -> None:
    item = {
        "model_name": "m",
        "layer": ["a", "b"],
        "opname_range": [{"begin": "c", "end": "d"}],
        "optype_blacklist": [{"name": "Conv2D", "pos": ["input0", "input1"]}, {"name": "Idle"}],
    }
    values = settings(
        dump_path="/data", dump_list=[item, {}], dump_level="op", dump_mode="all", dump_step="0|3-5"
    )

    what, where, cost = explain(values, {})

    assert what == (
        (
            "The operators a, b and the operators from c to d of model m, with the data operators that feed "
            "them, without input0, input1 of type Conv2D."
        ),
        "All operators of all models.",
        "Of each: inputs, outputs and workspaces, in files of operators.",
        "In the steps 0|3-5.",
    )
    assert where[0] == "Through the callback if one is registered, else to /data/TIME/DEVICE/."
    assert cost[:2] == ("Up to 2 files for each operator in each step.", "4 steps.")


def test_statistics_of_single_calls_are_explained() -> None:
    what, _, cost = explain(settings(dump_path="/data", dump_op_switch="on", dump_data="stats"), {})

    assert what[0] == "Every single-operator call."
    assert what[2].startswith("Not the tensors but statistics text about them: Max, Min, Avg,")
    assert cost == (
        "Up to 2 files for each operator in each step.",
        "There is no end to the steps.",
        "A few hundred bytes for each tensor.",
    )


def test_watch_mode_is_explained() -> None:
    item = {"layer": ["A", "B", "C"], "watcher_nodes": ["C", "D"]}

    what, _, cost = explain(settings(dump_path="/data", dump_scene="watcher", dump_list=[item]), {})

    assert what[0] == "The outputs of C, D: after themselves and after A, B, C."
    assert cost == ("2 watched, each dumped 4 times in a step.",)


def test_exception_dumps_are_explained_with_the_reason_for_their_place() -> None:
    _, where, cost = explain(EXCEPTION, {"NPU_COLLECT_PATH": "/collected"})

    assert where == (
        "To disk, never through the callback.",
        (
            "By the source: /conf/extra-info/data-dump/DEVICE/, from dump_path, "
            "after ASCEND_DUMP_PATH (not set), ASCEND_WORK_PATH (not set)."
        ),
        (
            "By the documents: /collected/extra-info/data-dump/DEVICE/, from NPU_COLLECT_PATH, "
            "which comes first."
        ),
        "NPU_COLLECT_PATH switches aic_err_norm_dump on by itself, and a second switching-on is ignored.",
    )
    assert cost == ("Nothing until an operator fails.",)


def test_overflow_dumps_are_explained() -> None:
    what, where, _ = explain(settings(dump_path="1.2.3.4:/data", dump_debug="on"), {})

    assert what == ("Operators on the AI Core that overflow: inputs, outputs, and a record of the overflow.",)
    assert "1.2.3.4:/data (another machine)" in where[0]
