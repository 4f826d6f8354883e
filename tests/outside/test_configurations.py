"""What processes say of their dump configurations, put together within bounds."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.analysis.modes import modes_of
from dumpstream.archive.manifest import LONGEST_CONFIG, Configured
from dumpstream.outside.configurations import Configurations
from dumpstream.outside.wire import LONGEST_PROBLEM, ConfigPart, decode, encode, parse_config_part

WATCH = {"dump": {"dump_scene": "watcher", "dump_list": [{"layer": ["a"], "watcher_nodes": ["b"]}]}}
OVERFLOW = {"dump": {"dump_debug": "on"}}


def part(**fields: Any) -> ConfigPart:
    """Return the piece that a message with *fields* is."""
    return parse_config_part(decode(encode("config", fields.items())))


def whole(config: object, path: str = "acl.json", **fields: Any) -> ConfigPart:
    text = config if isinstance(config, str) else json.dumps(config)
    about = {"by": "program", "call": "aclmdlSetDump", "path": path, "lost": 0, **fields}
    return part(**about, size=len(os.fsencode(text)), offset=0, text=text)


def in_pieces(config: object) -> list[ConfigPart]:
    text = json.dumps(config)
    about = {"by": "program", "call": "aclInit", "path": "x", "size": len(text)}
    return [part(**about, offset=at, text=text[at : at + 60_000]) for at in range(0, len(text), 60_000)]


def told_by(*parts: ConfigPart) -> list[Configured]:
    """Return what is known after *parts* have come and were read."""
    configurations = Configurations({})
    for it in parts:
        configurations.hear(it)
        configurations.read()
    configurations.hear_no_more()
    return configurations.told


def as_kept(config: object) -> Any:
    """Return *config* as a manifest has it."""
    return json.loads(json.dumps(config))


def test_a_configuration_is_kept_with_who_put_it_in_force() -> None:
    (found,) = told_by(whole(WATCH, "/job/acl.json", by="agent"))

    assert (found.by, found.call, found.path) == ("agent", "aclmdlSetDump", "/job/acl.json")
    assert as_kept(found.config) == WATCH
    assert (found.problem, found.times) == (None, 1)
    assert modes_of([found]) == ("watch",)


def test_pieces_are_put_together() -> None:
    text = json.dumps(WATCH)
    about = {"by": "program", "call": "aclInit", "path": "x", "size": len(text)}
    pieces = [part(**about, offset=at, text=text[at : at + 7]) for at in range(0, len(text), 7)]

    (found,) = told_by(*pieces)

    assert as_kept(found.config) == WATCH


@pytest.mark.parametrize("wrong", [0, 2], ids=["too early", "too late"])
def test_a_piece_that_does_not_follow_is_not_taken(wrong: int) -> None:
    text = json.dumps(OVERFLOW)
    pieces = [part(path="x", size=len(text), offset=at, text=text[at : at + 9]) for at in (0, 9 + wrong - 1)]

    (found,) = told_by(*pieces)

    assert (found.config, found.problem) == (None, "did not reach the collector as a whole")


def test_one_that_comes_again_is_counted_and_becomes_the_latest() -> None:
    first, second = told_by(whole(WATCH), whole(OVERFLOW), whole(WATCH), whole(WATCH), whole(OVERFLOW))

    assert (as_kept(first.config), first.times) == (WATCH, 3)
    assert (as_kept(second.config), second.times) == (OVERFLOW, 2)
    assert first.first <= second.first <= first.last <= second.last


def test_another_content_of_the_same_file_is_another_one() -> None:
    assert [as_kept(it.config) for it in told_by(whole(WATCH), whole(OVERFLOW))] == [WATCH, OVERFLOW]


@pytest.mark.parametrize(
    "text", ["{", "[]", "nonsense", '{"dump": 3}', '{"dump": {"dump_mode": "x"}}', "{" * 99, "\udcff"]
)
def test_what_is_no_configuration_is_kept_as_a_problem(text: str) -> None:
    (found,) = told_by(whole(text))

    assert found.config is None
    assert found.problem


def test_a_problem_is_no_longer_than_a_line_may_be() -> None:
    (found,) = told_by(whole({"dump": {"dump_mode": "x" * 60_000}}))

    assert found.problem is not None
    assert found.problem.startswith("'xxx")
    assert len(found.problem) == LONGEST_PROBLEM


def test_an_empty_file_changes_nothing() -> None:
    assert told_by(whole("")) == []


def test_what_could_not_be_told_is_counted() -> None:
    started = whole(WATCH)._replace(text=b"{")

    lost, found = told_by(started, whole(OVERFLOW, lost=3))

    assert (lost.times, lost.config) == (3, None)
    assert lost.problem == "did not reach the collector, which was slow"
    assert as_kept(found.config) == OVERFLOW


def test_the_reason_why_only_a_path_is_told_is_kept() -> None:
    (found,) = told_by(part(path="/x", call="aclInit", problem="it has more than 1 MiB"))

    assert (found.path, found.problem) == ("/x", "it has more than 1 MiB")


def test_a_length_that_no_agent_tells_is_not_waited_for() -> None:
    (found,) = told_by(part(path="/x", size=(1 << 20) + 1, offset=0, text="{"))

    assert found.problem == "its text was not sent"


def test_so_many_different_ones_are_kept_and_the_others_counted() -> None:
    found = told_by(*(whole({"dump": {"dump_step": str(step)}}) for step in range(100)))

    assert [it.times for it in found] == [1] * 64 + [36]
    assert found[-1].problem == "not kept: 64 others had come before"


def test_together_they_are_no_longer_than_a_manifest_can_bear() -> None:
    layers = [{"dump": {"dump_list": [{"layer": [f"{number}{'x' * 60_000}"]}]}} for number in range(6)]

    found = told_by(*map(whole, layers))

    assert [it.config is None for it in found] == [False] * 4 + [True] * 2
    assert found[-1].problem == f"not kept: together they have more than {LONGEST_CONFIG >> 10} KiB"


@pytest.mark.parametrize("value", [1, {}], ids=["wrong", "right"])
def test_one_with_so_many_values_that_others_would_wait_is_not_read(value: object) -> None:
    full, most = ({"dump": {"dump_list": [value] * count}} for count in (16_385, 16_384))

    assert [it.problem for it in told_by(*in_pieces(full))] == ["not read: it has more than 16384 values"]
    assert [it.problem for it in told_by(*in_pieces(most))] != ["not read: it has more than 16384 values"]


def test_what_comes_too_fast_to_be_read_is_not_held() -> None:
    configurations = Configurations({})
    for step in range(6):
        for piece in in_pieces({"dump": {"dump_step": str(step), "x": "x" * 1_000_000}}):
            configurations.hear(piece)
    configurations.read()

    slow = [it.problem == "not kept: too many came at once" for it in configurations.told]
    assert slow == [False] * 4 + [True] * 2


def test_short_ones_may_come_at_once() -> None:
    configurations = Configurations({})
    for step in range(64):
        configurations.hear(whole({"dump": {"dump_step": str(step)}}))
    configurations.read()

    assert [it.problem for it in configurations.told] == [None] * 64


def test_an_exception_scene_of_the_environment_is_known() -> None:
    configurations = Configurations({"ASCEND_DUMP_SCENE": "aic_err_brief_dump", "NPU_COLLECT_PATH": ""})

    configurations.read()

    (found,) = configurations.told
    assert (found.by, found.path) == ("environment", "ASCEND_DUMP_SCENE")
    assert modes_of([found]) == ("exception",)
    assert not Configurations({"ASCEND_DUMP_SCENE": ""}).unread


_FIELD = st.tuples(
    st.sampled_from(["by", "call", "path", "lost", "size", "offset", "text", "problem", "x"]),
    st.one_of(st.integers(0, 20), st.sampled_from(["{}", "agent", json.dumps(WATCH)]), st.text(max_size=20)),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(_FIELD, max_size=8), max_size=12))
def test_no_report_of_an_agent_fails(messages: list[list[tuple[str, str | int]]]) -> None:
    usable = [[(key, str(value).encode(errors="ignore").decode()) for key, value in it] for it in messages]

    found = told_by(*(parse_config_part(decode(encode("config", fields))) for fields in usable))

    assert all((it.config is None) == (it.problem is not None) for it in found)
    assert all(it.times > 0 for it in found)
