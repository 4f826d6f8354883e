from __future__ import annotations

from typing import Any

import pytest

from dumpstream import DumpstreamError
from dumpstream.config import DumpSettings, Matcher, Operator, read_operators

GRAPH = read_operators(
    b"""[
    {"name": "data", "type": "Data", "model": "m", "feeds": ["a"]},
    {"name": "a", "type": "Conv2D", "model": "m", "original_names": ["old_a"]},
    {"name": "b", "type": "Relu", "model": "m"},
    {"name": "c", "type": "HcomAllReduce", "model": "m"},
    {"name": "d", "type": "Conv2D", "model": "m"}
]"""
)


def operator(name: str = "a", **more: Any) -> Operator:
    known = next((op for op in GRAPH if op.name == name), Operator(name=name, model="m"))
    return known.model_copy(update=more)


def matcher(*items: dict[str, Any], graph: tuple[Operator, ...] = GRAPH, **settings: Any) -> Matcher:
    return Matcher(DumpSettings.model_validate({"dump_path": ".", "dump_list": items} | settings), graph)


def dumped(matched: Matcher, *names: str, **more: Any) -> list[bool | None]:
    return [matched.match(operator(name, **more)).dumped for name in names]


def test_nothing_is_dumped_without_a_selection() -> None:
    assert matcher().match(operator()) == (False, "nothing is switched on")


def test_an_empty_item_takes_every_operator_of_every_model() -> None:
    matched = matcher({})

    assert dumped(matched, "data", "a", "d", model="other") == [True, True, True]


def test_a_model_name_takes_the_operators_of_that_model() -> None:
    matched = matcher({"model_name": "m"})

    assert matched.match(operator()).dumped
    assert matched.match(operator(model="n")) == (False, "no item of dump_list is for model 'n'")


def test_layer_takes_original_and_converted_names() -> None:
    assert dumped(matcher({"layer": ["old_a", "d"]}), "a", "b", "d") == [True, False, True]


def test_a_data_operator_comes_with_the_operator_that_it_feeds() -> None:
    assert matcher({"layer": ["a"]}).match(operator("data")) == (True, "it feeds 'a', which is dumped")
    assert dumped(matcher({"layer": ["b"]}), "data") == [False]


def test_a_data_operator_is_not_dumped_for_its_own_name() -> None:
    assert dumped(matcher({"layer": ["data"]}), "data") == [False]


def test_an_item_for_all_models_hides_the_others() -> None:
    matched = matcher({"model_name": "m", "layer": ["a"]}, {"layer": ["b"]})

    assert dumped(matched, "a", "b") == [False, True]


def test_the_last_item_for_a_model_counts() -> None:
    matched = matcher({"model_name": "m", "layer": ["a"]}, {"model_name": "m", "layer": ["b"]})

    assert dumped(matched, "a", "b") == [False, True]


@pytest.mark.parametrize("level", ["op", "kernel"])
def test_level_selects_files_of_operators_or_kernels(level: str) -> None:
    matched = matcher({}, dump_level=level)

    assert [matched.match(operator(level=asked)).dumped for asked in ("op", "kernel", None)] == [
        level == "op",
        level == "kernel",
        True,
    ]


@pytest.mark.parametrize(
    ("mode", "expected"), [("input", [True, False]), ("output", [False, True]), ("all", [True, True])]
)
def test_mode_selects_inputs_or_outputs(mode: str, expected: list[bool]) -> None:
    matched = matcher({}, dump_mode=mode)

    assert [matched.match(operator(io=io)).dumped for io in ("input", "output")] == expected


def test_step_selects_iterations() -> None:
    matched = matcher({}, dump_step="0|3-5")

    assert [matched.match(operator(step=step)).dumped for step in (0, 1, 4, None)] == [
        True,
        False,
        True,
        None,
    ]


def test_an_operator_that_is_not_selected_does_not_depend_on_the_step() -> None:
    matched = matcher({"layer": ["a"]}, dump_step="0|3-5")

    assert matched.match(operator("b")) == (False, "layer does not name it, for all models")
    assert matched.match(operator("a")) == (None, "layer names it, for all models, only in the steps 0|3-5")
    assert dumped(matched, "a", "b", step=1) == [False, False]


def test_overflow_dumps_beside_a_list_are_none() -> None:
    assert dumped(matcher({}, dump_debug="on"), "a", "b", faulty=True) == [False, False]


def test_single_calls_depend_on_the_switch_only() -> None:
    call = Operator(name="aclnnAdd", single=True)

    assert matcher(dump_op_switch="on").match(call) == (True, "dump_op_switch is on")
    assert matcher({}).match(call) == (False, "dump_op_switch is off")
    assert matcher(dump_op_switch="on").match(operator()) == (False, "dump_list is empty")
    assert not matcher(dump_op_switch="on", dump_step="0").match(call).dumped


def test_blacklists_take_single_inputs_and_outputs_away() -> None:
    matched = matcher(
        {
            "optype_blacklist": [{"name": "Conv2D", "pos": ["input0"]}],
            "opname_blacklist": [{"name": "a", "pos": ["output1"]}],
        },
        dump_level="op",
        dump_mode="all",
    )

    places = [("input", 0), ("input", 1), ("output", 1)]
    assert [matched.match(operator("a", io=io, index=index)).dumped for io, index in places] == [
        False,
        True,
        False,
    ]
    assert [matched.match(operator("d", io=io, index=index)).dumped for io, index in places] == [
        False,
        True,
        True,
    ]
    assert matched.match(operator("a")).reason.endswith(", without input0, output1")


def test_a_blacklist_of_one_model_leaves_the_others_alone() -> None:
    matched = matcher(
        {"model_name": "m", "opname_blacklist": [{"name": "a", "pos": ["output0"]}]},
        {"model_name": "n"},
        dump_level="op",
    )

    asked = {"io": "output", "index": 0}
    assert not matched.match(operator("a", **asked)).dumped
    assert matched.match(operator("a", model="n", **asked)).dumped


def test_a_range_includes_both_ends_and_the_data_that_feeds_it() -> None:
    matched = matcher({"model_name": "m", "opname_range": [{"begin": "a", "end": "c"}]}, dump_level="op")

    assert dumped(matched, "data", "a", "b", "c", "d") == [True, True, True, True, False]


def test_a_range_adds_to_layer() -> None:
    item = {"model_name": "m", "layer": ["d"], "opname_range": [{"begin": "a", "end": "b"}]}

    assert dumped(matcher(item, dump_level="op"), "a", "b", "c", "d") == [True, True, False, True]


def test_without_the_graph_a_range_is_open_between_its_ends() -> None:
    matched = matcher(
        {"model_name": "m", "opname_range": [{"begin": "a", "end": "c"}]}, graph=(), dump_level="op"
    )

    assert dumped(matched, "a", "b", "c") == [True, None, True]


def test_a_data_operator_at_an_end_spoils_a_range() -> None:
    matched = matcher({"model_name": "m", "opname_range": [{"begin": "data", "end": "b"}]}, dump_level="op")

    assert dumped(matched, "data", "a", "b") == [False, False, False]


@pytest.mark.parametrize("settings", [{"dump_debug": "on"}, {"dump_scene": "aic_err_norm_dump"}])
def test_faults_decide_in_overflow_and_exception_mode(settings: dict[str, Any]) -> None:
    matched = matcher(**settings)

    assert [matched.match(operator(faulty=faulty)).dumped for faulty in (True, False, None)] == [
        True,
        False,
        None,
    ]


def test_overflows_are_those_of_the_ai_core() -> None:
    assert not matcher(dump_debug="on").match(operator(faulty=True, ai_core=False)).dumped


def watching(**item: Any) -> Matcher:
    return matcher({"watcher_nodes": ["d"], **item}, dump_scene="watcher")


def test_only_outputs_of_watched_operators_are_dumped() -> None:
    matched = watching(layer=["a"])

    assert matched.match(operator("d")) == (True, "its outputs are dumped after it and after a")
    assert dumped(matched, "a", "b") == [False, False]
    assert dumped(matched, "d", io="input") == [False]
    assert dumped(matched, "d", static=False) == [False]
    assert dumped(matched, "d", single=True) == [False]


def test_watched_operators_go_by_their_fused_name() -> None:
    assert dumped(matcher({"watcher_nodes": ["old_a"]}, dump_scene="watcher"), "a") == [False]


@pytest.mark.parametrize(
    ("layer", "expected"), [(["a", "c"], ["a", "d"]), (None, ["data", "a", "b", "d"]), (["d"], ["d"])]
)
def test_watched_operators_are_dumped_after_layer_but_not_after_collectives(
    layer: list[str] | None, expected: list[str]
) -> None:
    matched = watching(**({"layer": layer} if layer else {}))

    assert [op.name for op in GRAPH if matched.triggers(op)] == expected


def test_outside_watch_mode_nothing_triggers() -> None:
    assert not any(matcher({}).triggers(op) for op in GRAPH)


def test_operators_without_an_order_take_their_place_in_the_file() -> None:
    operators = read_operators(b'[{"name": "x"}, {"name": "y", "order": 7}]')

    assert [op.order for op in operators] == [0, 7]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"{}", r"\$: "),
        (b'[{"nme": "x"}]', r"\$\[0\]\.name"),
        (b'[{"name": 1}]', r"\$\[0\]\.name"),
        (b"x", r"\$: "),
    ],
)
def test_what_is_no_list_of_operators_is_told_with_its_place(data: bytes, place: str) -> None:
    with pytest.raises(DumpstreamError, match=place):
        read_operators(data)


def test_a_watched_operator_is_dumped_in_the_chosen_steps() -> None:
    watch = matcher({"watcher_nodes": ["a"]}, dump_scene="watcher", dump_mode="output", dump_step="1")

    assert [watch.match(operator(step=step)).dumped for step in (0, 1, None)] == [False, True, None]
