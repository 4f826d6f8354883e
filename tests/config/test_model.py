"""Building configurations in Python, and writing them back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.config import (
    AclConfig,
    Blacklisted,
    DumpSettings,
    Mode,
    NameRange,
    Selection,
    check_bytes,
    check_config,
    json_schema,
)


def test_configuration_is_built_from_keyword_arguments() -> None:
    config = AclConfig(
        dump=DumpSettings(
            dump_path="/data",
            dump_level="op",
            dump_list=(
                Selection(
                    model_name="m",
                    optype_blacklist=(Blacklisted(name="Conv2D", pos=("input0",)),),
                    opname_range=(NameRange(begin="a", end="b"),),
                ),
            ),
        )
    )

    assert json.loads(config.to_json()) == {
        "dump": {
            "dump_path": "/data",
            "dump_list": [
                {
                    "model_name": "m",
                    "optype_blacklist": [{"name": "Conv2D", "pos": ["input0"]}],
                    "opname_range": [{"begin": "a", "end": "b"}],
                }
            ],
            "dump_level": "op",
        }
    }


def test_what_the_rules_refuse_cannot_be_built_and_every_reason_is_told() -> None:
    with pytest.raises(ValueError, match=r"dump_path is missing.*dump_debug on excludes dump_op_switch on"):
        AclConfig(dump=DumpSettings(dump_debug="on", dump_op_switch="on"))


def test_building_does_not_look_at_the_disk() -> None:
    config = AclConfig(dump=DumpSettings(dump_path="/no/such/directory", dump_list=(Selection(),)))

    assert [problem.rule for problem in check_config(config) if problem.is_error] == ["path.directory"]


def test_defaults_are_those_of_cann_and_are_not_written() -> None:
    config = AclConfig(dump=DumpSettings(dump_path="."))

    dump = config.dump
    assert (dump.dump_mode, dump.dump_level, dump.dump_data) == ("output", "all", "tensor")
    assert (dump.dump_op_switch, dump.dump_debug, dump.dump_scene) == ("off", "off", None)
    assert config.as_dict() == {"dump": {"dump_path": "."}}


@pytest.mark.parametrize(
    ("settings", "modes"),
    [
        ({}, ()),
        ({"dump_list": ()}, ()),
        ({"dump_list": (Selection(),)}, (Mode.MODEL,)),
        ({"dump_op_switch": "on"}, (Mode.OP,)),
        ({"dump_list": (Selection(),), "dump_op_switch": "on"}, (Mode.MODEL, Mode.OP)),
        ({"dump_debug": "on"}, (Mode.OVERFLOW,)),
        ({"dump_scene": "lite_exception"}, (Mode.EXCEPTION,)),
        ({"dump_scene": "watcher", "dump_list": (Selection(watcher_nodes=("C",)),)}, (Mode.WATCH,)),
    ],
)
def test_modes_are_told_apart(settings: dict[str, Any], modes: tuple[Mode, ...]) -> None:
    assert DumpSettings(**settings).modes == modes


def test_schema_names_choices_and_limits_and_allows_other_keys() -> None:
    schema = json_schema()

    dump = schema["$defs"]["DumpSettings"]
    assert dump["additionalProperties"] is True
    assert dump["properties"]["dump_mode"]["enum"] == ["input", "output", "all"]
    assert dump["properties"]["dump_path"]["maxLength"] == 512
    assert "null" not in json.dumps(schema)
    assert schema["$defs"]["Selection"]["properties"]["opname_blacklist"]["maxItems"] == 100


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]{}"), min_size=1, max_size=8)
lists_of_names = st.lists(names, min_size=1, max_size=3)
extras = st.dictionaries(
    names.map(lambda name: f"x-{name}"),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    max_size=2,
)
steps = st.lists(st.integers(0, 99).map(str) | st.just("3-5"), min_size=1, max_size=5).map("|".join)
entries = st.lists(st.fixed_dictionaries({"name": names, "pos": st.just(["input0"])}), min_size=1, max_size=3)


def with_extras(required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(required, optional=optional or {})
    return st.tuples(extras, objects).map(lambda both: both[0] | both[1])


ranges = st.lists(with_extras({"begin": names, "end": names}), min_size=1, max_size=2)
plain_items = with_extras({}, {"model_name": names, "layer": lists_of_names})
op_items = with_extras(
    {"model_name": names},
    {
        "layer": lists_of_names,
        "opname_range": ranges,
        "optype_blacklist": entries,
        "opname_blacklist": entries,
    },
)
common = {"dump_mode": st.sampled_from(["input", "output", "all"]), "dump_step": steps}
path = {"dump_path": st.just(".")}
dumps = st.one_of(
    with_extras(
        path | {"dump_list": st.lists(plain_items, max_size=3)},
        common | {"dump_op_switch": st.sampled_from(["on", "off"])},
    ),
    with_extras(path | {"dump_list": st.lists(op_items, max_size=3), "dump_level": st.just("op")}, common),
    with_extras(
        path
        | {
            "dump_op_switch": st.just("on"),
            "dump_data": st.just("stats"),
            "dump_stats": st.lists(st.sampled_from(["Max", "Negative Inf"]), min_size=1),
        }
    ),
    with_extras(path | {"dump_debug": st.just("on")}),
    with_extras(
        {"dump_scene": st.sampled_from(["lite_exception", "aic_err_detail_dump"])}, {"dump_path": names}
    ),
    with_extras(
        path
        | {
            "dump_scene": st.just("watcher"),
            "dump_list": st.lists(with_extras({"watcher_nodes": lists_of_names}, {"layer": lists_of_names})),
        }
    ),
)


@settings(deadline=None, max_examples=200)
@given(st.tuples(extras, dumps))
def test_built_configuration_validates_and_survives_a_round_trip(both: tuple[dict[str, Any], Any]) -> None:
    content = both[0] | {"dump": both[1]}

    config = AclConfig.model_validate(content)
    checked = check_bytes(config.to_json().encode(), environment={})

    assert not checked.errors
    assert checked.config == config
    assert json.loads(config.to_json()) == content


values = {
    "dump_path": st.sampled_from([".", "", "1.2.3.4:a b"]),
    "dump_list": st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "model_name": st.sampled_from(["", "m"]),
                "layer": st.lists(st.sampled_from(["a", "b"]), max_size=2),
                "optype_blacklist": st.just([{}]),
                "opname_range": st.sampled_from([[], [{"begin": "a"}], [{"begin": "a", "end": "b"}]]),
                "watcher_nodes": st.lists(st.just("a"), max_size=1),
            },
        ),
        max_size=2,
    ),
    "dump_mode": st.sampled_from(["output", "all", "x"]),
    "dump_level": st.sampled_from(["op", "all"]),
    "dump_op_switch": st.sampled_from(["on", "off"]),
    "dump_debug": st.sampled_from(["on", "off"]),
    "dump_step": st.sampled_from(["", "1|3-5", "3-1"]),
    "dump_data": st.sampled_from(["stats", "tensor"]),
    "dump_stats": st.sampled_from([[], ["Max"]]),
    "dump_scene": st.sampled_from(["watcher", "aic_err_norm_dump"]),
    "dump_kernel_data": st.sampled_from(["all", "", "printf,x"]),
}


@settings(deadline=None, max_examples=300)
@given(st.fixed_dictionaries({}, optional=values))
def test_what_can_be_built_is_exactly_what_is_accepted(dump: dict[str, Any]) -> None:
    refused = bool(check_bytes(json.dumps({"dump": dump}).encode(), environment={}).errors)

    if refused:
        with pytest.raises(ValueError, match="dump"):
            AclConfig.model_validate({"dump": dump})
    else:
        AclConfig.model_validate({"dump": dump})
