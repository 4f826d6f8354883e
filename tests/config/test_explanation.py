"""What is said about a configuration, and where exception dumps land."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dumpstream.config import DumpSettings, explain, landing, switched_on_by

if TYPE_CHECKING:
    from pathlib import Path


def settings(**values: Any) -> DumpSettings:
    return DumpSettings.model_validate(values)


BRIEF, NORM, DETAIL = "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"
EXCEPTION = settings(dump_scene=BRIEF, dump_path="/conf")


def landed(values: DumpSettings, **environment: str) -> tuple[str, str, str]:
    """Return what switches exception dumps on, their scene, and where the directory comes from."""
    found = landing(values, environment)
    assert found is not None
    return (*found.switch, found.chosen.name)


def test_without_variables_exception_dumps_land_in_dump_path() -> None:
    found = landing(EXCEPTION, {})

    assert found is not None
    assert found.directory == "/conf/extra-info/data-dump"


def test_without_anything_they_land_in_the_current_directory() -> None:
    found = landing(settings(dump_scene="lite_exception"), {})

    assert found is not None
    assert found.directory == "./extra-info/data-dump"


def test_without_a_scene_and_a_variable_there_is_no_landing() -> None:
    assert landing(settings(dump_path="/conf", dump_list=[{}]), {"ASCEND_WORK_PATH": "/tmp"}) is None


def test_two_variables_come_before_the_dump_path_of_a_configuration(tmp_path: Path) -> None:
    place = str(tmp_path)

    assert landed(EXCEPTION, ASCEND_WORK_PATH=place) == ("dump_scene", BRIEF, "ASCEND_WORK_PATH")
    assert landed(EXCEPTION, ASCEND_WORK_PATH=place, ASCEND_DUMP_PATH=place)[2] == "ASCEND_DUMP_PATH"


def test_a_scene_in_the_environment_replaces_that_of_the_configuration(tmp_path: Path) -> None:
    place = str(tmp_path)

    assert landed(EXCEPTION, ASCEND_DUMP_SCENE=DETAIL) == (
        "ASCEND_DUMP_SCENE",
        DETAIL,
        "the current directory of the process",
    )
    assert landed(EXCEPTION, ASCEND_DUMP_SCENE=NORM, NPU_COLLECT_PATH=place, ASCEND_WORK_PATH=place) == (
        "ASCEND_DUMP_SCENE",
        NORM,
        "ASCEND_WORK_PATH",
    )


def test_a_collecting_path_is_the_path(tmp_path: Path) -> None:
    variables = dict.fromkeys(("NPU_COLLECT_PATH", "ASCEND_WORK_PATH", "ASCEND_DUMP_PATH"), str(tmp_path))

    assert landed(EXCEPTION, **variables) == ("NPU_COLLECT_PATH", NORM, "NPU_COLLECT_PATH")


def test_an_empty_variable_does_not_count() -> None:
    found = landing(EXCEPTION, {"ASCEND_DUMP_PATH": ""})

    assert found is not None
    assert found.candidates[0].rejected == "set, but empty"
    assert found.chosen.name == "dump_path"


def test_what_cannot_be_made_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert landed(EXCEPTION, ASCEND_WORK_PATH=str(file))[2] == "dump_path"
    assert landed(EXCEPTION, NPU_COLLECT_PATH=str(file / "below"))[0] == "dump_scene"
    assert landed(EXCEPTION, NPU_COLLECT_PATH=str(tmp_path / ("x" * 256)))[0] == "dump_scene"
    assert landed(EXCEPTION, NPU_COLLECT_PATH=str(tmp_path) + "/x" * 3000)[0] == "dump_scene"
    assert landed(EXCEPTION, ASCEND_WORK_PATH=str(tmp_path / "new/place"))[2] == "ASCEND_WORK_PATH"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"ASCEND_DUMP_SCENE": "aic_err_detail_dump"}, ("ASCEND_DUMP_SCENE", "aic_err_detail_dump")),
        ({"ASCEND_DUMP_SCENE": "watcher"}, None),
        ({"NPU_COLLECT_PATH": "."}, ("NPU_COLLECT_PATH", "aic_err_norm_dump")),
        ({"NPU_COLLECT_PATH": "/dev/null/x"}, None),
        ({"NPU_COLLECT_PATH": ""}, None),
    ],
)
def test_variables_switch_exception_dumps_on(
    environment: dict[str, str], expected: tuple[str, str] | None
) -> None:
    assert switched_on_by(environment) == expected


def test_whether_a_directory_can_be_made_is_asked_only_on_request() -> None:
    assert switched_on_by({"NPU_COLLECT_PATH": "/dev/null/x"}, disk=False) == ("NPU_COLLECT_PATH", NORM)


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
    assert cost == ("2 watched, each dumped up to 4 times in a step of each model that has it.",)


def test_exception_dumps_are_explained_with_the_reason_for_their_place() -> None:
    _, where, cost = explain(EXCEPTION, {"ASCEND_WORK_PATH": "/dev/null/x"})

    (sentence,) = where
    assert sentence == (
        "Operators that fail: to disk, never through the callback, to /conf/extra-info/data-dump/DEVICE/, "
        "from dump_path, after ASCEND_DUMP_PATH (not set), "
        "ASCEND_WORK_PATH (cannot be made, read and written)."
    )
    assert cost == ("Exception dumps: nothing until an operator fails.",)


def test_an_environment_that_switches_them_on_is_explained_with_what_it_replaces() -> None:
    what, where, _ = explain(EXCEPTION, {"NPU_COLLECT_PATH": "/tmp"})

    assert what[0].endswith("workspaces with shapes, types, formats and attributes.")
    assert where[0].endswith(
        "to /tmp/extra-info/data-dump/DEVICE/, from NPU_COLLECT_PATH, which comes first."
    )
    assert where[1] == (
        "NPU_COLLECT_PATH switches aic_err_norm_dump on before a configuration is read, "
        "so dump_scene aic_err_brief_dump is ignored."
    )


def test_an_environment_adds_exception_dumps_to_a_configuration_without_them() -> None:
    what, where, cost = explain(
        settings(dump_path="/data", dump_list=[{}]), {"ASCEND_DUMP_SCENE": "aic_err_brief_dump"}
    )

    assert what[0] == "Operators that fail on the AI Core: inputs, outputs and workspaces."
    assert what[1] == "All operators of all models."
    assert where[-1] == "ASCEND_DUMP_SCENE switches aic_err_brief_dump on before a configuration is read."
    assert cost[0] == "Exception dumps: nothing until an operator fails."


def test_overflow_dumps_beside_a_list_are_explained_as_nothing() -> None:
    what, _, _ = explain(settings(dump_path="/data", dump_debug="on", dump_list=[{}]), {})

    assert what == (
        "Nothing that overflows: beside dump_debug on, dump_list makes the graph engine dump nothing.",
    )


def test_overflow_dumps_are_explained() -> None:
    what, where, _ = explain(settings(dump_path="1.2.3.4:/data", dump_debug="on"), {})

    assert what == ("Operators on the AI Core that overflow: inputs, outputs, and a record of the overflow.",)
    assert "1.2.3.4:/data (another machine)" in where[0]
