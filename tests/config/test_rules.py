"""Every rule with a configuration that breaks it and one that does not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dumpstream.config import RULES, Check, Origin, Rule, check_bytes
from dumpstream.config.rules import BY_ID

PATH = {"dump_path": "."}
ALL: dict[str, Any] = PATH | {"dump_list": [{}]}
OP = ALL | {"dump_level": "op"}
OVERFLOW = PATH | {"dump_debug": "on"}
EXCEPTION = {"dump_scene": "aic_err_norm_dump"}
WATCH = PATH | {"dump_scene": "watcher"}
WATCHED = WATCH | {"dump_list": [{"layer": ["A"], "watcher_nodes": ["C"]}]}
ENTRY = {"name": "Conv2D", "pos": ["input0"]}
RANGE = {"begin": "a", "end": "b"}


class Case(NamedTuple):
    rule: str
    path: str
    broken: dict[str, Any]
    kept: dict[str, Any]


def listed(**item: Any) -> dict[str, Any]:
    return PATH | {"dump_list": [item]}


CASES = [
    Case("type.object", "$.dump.dump_list[0]", PATH | {"dump_list": ["m"]}, ALL),
    Case("type.array", "$.dump.dump_list", PATH | {"dump_list": {}}, ALL),
    Case("type.array", "$.dump.dump_list[0].layer", listed(layer="a"), listed(layer=["a"])),
    Case("type.array", "$.dump.dump_stats", ALL | {"dump_stats": "Max"}, ALL),
    Case("type.string", "$.dump.dump_path", ALL | {"dump_path": 5}, ALL),
    Case("type.string", "$.dump.dump_step", ALL | {"dump_step": 5}, ALL | {"dump_step": "5"}),
    Case("type.string", "$.dump.dump_mode", ALL | {"dump_mode": 5}, ALL | {"dump_mode": "all"}),
    Case("type.string", "$.dump.dump_scene", ALL | {"dump_scene": None}, ALL),
    Case("type.string", "$.dump.dump_list[0].layer[1]", listed(layer=["a", 1]), listed(layer=["a", "1"])),
    Case("value.empty", "$.dump.dump_level", ALL | {"dump_level": ""}, OP),
    Case("value.empty", "$.dump.dump_scene", ALL | {"dump_scene": ""}, EXCEPTION),
    Case("value.choice", "$.dump.dump_mode", ALL | {"dump_mode": "both"}, ALL | {"dump_mode": "all"}),
    Case("value.choice", "$.dump.dump_level", ALL | {"dump_level": "OP"}, OP),
    Case(
        "value.choice", "$.dump.dump_op_switch", ALL | {"dump_op_switch": "1"}, ALL | {"dump_op_switch": "on"}
    ),
    Case("value.choice", "$.dump.dump_debug", ALL | {"dump_debug": "true"}, OVERFLOW),
    Case("value.choice", "$.dump.dump_data", ALL | {"dump_data": "npy"}, ALL | {"dump_data": "stats"}),
    Case("value.choice", "$.dump.dump_scene", PATH | {"dump_scene": "watch"}, WATCHED),
    Case(
        "value.choice",
        "$.dump.dump_stats[1]",
        ALL | {"dump_data": "stats", "dump_stats": ["Max", "L2Norm"]},
        ALL | {"dump_data": "stats", "dump_stats": ["Max", "L2norm"]},
    ),
    Case(
        "kernel_data.empty",
        "$.dump.dump_kernel_data",
        ALL | {"dump_kernel_data": "printf,"},
        ALL | {"dump_kernel_data": "printf,assert"},
    ),
    Case(
        "kernel_data.choice",
        "$.dump.dump_kernel_data",
        ALL | {"dump_kernel_data": "printf, assert"},
        ALL | {"dump_kernel_data": "timestamp,tensor"},
    ),
    Case("path.missing", "$.dump.dump_path", {"dump_list": [{}]}, ALL),
    Case("path.missing", "$.dump.dump_path", {"dump_debug": "on"}, OVERFLOW),
    Case("path.missing", "$.dump.dump_path", {"dump_scene": "watcher"}, EXCEPTION),
    Case("path.empty", "$.dump.dump_path", ALL | {"dump_path": ""}, EXCEPTION | {"dump_path": ""}),
    Case(
        "path.length",
        "$.dump.dump_path",
        ALL | {"dump_path": "é" * 256 + "a"},
        ALL | {"dump_path": "./" * 256},
    ),
    Case("path.directory", "$.dump.dump_path", ALL | {"dump_path": "/no/such/directory"}, ALL),
    Case("path.directory", "$.dump.dump_path", ALL | {"dump_path": "/dev/null"}, ALL),
    Case(
        "path.directory",
        "$.dump.dump_path",
        ALL | {"dump_path": "1.2.3.256:/a"},
        ALL | {"dump_path": "1.2.3.4:/a"},
    ),
    Case(
        "path.remote",
        "$.dump.dump_path",
        ALL | {"dump_path": "1.2.3.4:/a b"},
        ALL | {"dump_path": "1.2.3.4:/a:b"},
    ),
    Case(
        "list.model_name",
        "$.dump.dump_list[0].model_name",
        listed(model_name=""),
        listed(model_name="") | {"dump_op_switch": "on"},
    ),
    Case(
        "list.layer",
        "$.dump.dump_list[0].layer",
        listed(layer=[]),
        listed(layer=[]) | {"dump_op_switch": "on"},
    ),
    Case(
        "list.unique",
        "$.dump.dump_list[1].model_name",
        PATH | {"dump_list": [{"model_name": "m"}, {"model_name": "m"}]},
        PATH | {"dump_list": [{"model_name": "m"}, {"model_name": "n"}]},
    ),
    Case(
        "list.hidden",
        "$.dump.dump_list[1].model_name",
        PATH | {"dump_list": [{"layer": ["a"]}, {"model_name": "m"}]},
        PATH | {"dump_list": [{"model_name": "n", "layer": ["a"]}, {"model_name": "m"}]},
    ),
    Case(
        "blacklist.size",
        "$.dump.dump_list[0].opname_blacklist",
        OP | {"dump_list": [{"opname_blacklist": [ENTRY] * 101}]},
        OP | {"dump_list": [{"opname_blacklist": [ENTRY] * 100}]},
    ),
    Case(
        "blacklist.size",
        "$.dump.dump_list[0].optype_blacklist",
        OP | {"dump_list": [{"optype_blacklist": [ENTRY] * 101}]},
        OP | {"dump_list": [{"optype_blacklist": [ENTRY] * 100}]},
    ),
    Case(
        "blacklist.level",
        "$.dump.dump_list[0].optype_blacklist",
        listed(optype_blacklist=[ENTRY]),
        listed(optype_blacklist=[]),
    ),
    Case(
        "blacklist.ineffective",
        "$.dump.dump_list[0].optype_blacklist[0].pos",
        OP | {"dump_list": [{"optype_blacklist": [{"name": "Conv2D"}]}]},
        OP | {"dump_list": [{"optype_blacklist": [ENTRY]}]},
    ),
    Case(
        "blacklist.position",
        "$.dump.dump_list[0].opname_blacklist[0].pos[0]",
        OP | {"dump_list": [{"opname_blacklist": [ENTRY | {"pos": ["input"]}]}]},
        OP | {"dump_list": [{"opname_blacklist": [ENTRY | {"pos": ["output12"]}]}]},
    ),
    Case(
        "range.level",
        "$.dump.dump_list[0].opname_range",
        listed(model_name="m", opname_range=[RANGE]),
        listed(model_name="m", opname_range=[RANGE]) | {"dump_level": "op"},
    ),
    Case(
        "range.model_name",
        "$.dump.dump_list[0].model_name",
        listed(opname_range=[RANGE]) | {"dump_level": "op"},
        listed(model_name="m", opname_range=[RANGE]) | {"dump_level": "op"},
    ),
    Case(
        "range.ends",
        "$.dump.dump_list[0].opname_range[0].end",
        listed(model_name="m", opname_range=[{"begin": "a"}]) | {"dump_level": "op"},
        listed(model_name="m", opname_range=[RANGE]) | {"dump_level": "op"},
    ),
    Case(
        "range.data",
        "$.dump.dump_list[0].opname_range",
        listed(model_name="m", opname_range=[RANGE]) | {"dump_level": "op"},
        OP,
    ),
    Case(
        "step.items",
        "$.dump.dump_step",
        ALL | {"dump_step": "|".join(map(str, range(101)))},
        ALL | {"dump_step": "|".join(map(str, range(100)))},
    ),
    Case("step.syntax", "$.dump.dump_step", ALL | {"dump_step": "5-3"}, ALL | {"dump_step": "0|3-5|10"}),
    Case("step.last_wins", "$.dump.dump_step", ALL | {"dump_step": "1"}, ALL | {"dump_step": ""}),
    Case("stats.empty", "$.dump.dump_stats", ALL | {"dump_data": "stats", "dump_stats": []}, ALL),
    Case(
        "stats.data",
        "$.dump.dump_stats",
        ALL | {"dump_stats": ["Max"]},
        ALL | {"dump_stats": ["Max"], "dump_data": "stats"},
    ),
    Case(
        "stats.product",
        "$.dump.dump_stats",
        ALL | {"dump_stats": ["Max"], "dump_data": "stats"},
        ALL | {"dump_data": "stats"},
    ),
    Case("overflow.op_switch", "$.dump.dump_op_switch", OVERFLOW | {"dump_op_switch": "on"}, OVERFLOW),
    Case(
        "list.missing",
        "$.dump.dump_list",
        PATH | {"dump_op_switch": "on"},
        PATH | {"dump_op_switch": "on", "dump_list": []},
    ),
    Case("overflow.list", "$.dump.dump_list", OVERFLOW | {"dump_list": [{}]}, OVERFLOW),
    Case("overflow.empty_list", "$.dump.dump_list", OVERFLOW | {"dump_list": []}, OVERFLOW),
    Case("overflow.ai_core", "$.dump.dump_debug", OVERFLOW, ALL),
    Case("exception.debug", "$.dump.dump_debug", EXCEPTION | {"dump_debug": "on"}, EXCEPTION),
    Case("exception.op_switch", "$.dump.dump_op_switch", EXCEPTION | {"dump_op_switch": "on"}, EXCEPTION),
    Case("exception.list", "$.dump.dump_list", EXCEPTION | {"dump_list": [{}]}, EXCEPTION),
    Case("exception.others", "$.dump.dump_mode", EXCEPTION | {"dump_mode": "all"}, EXCEPTION),
    Case("exception.others", "$.dump.dump_op_switch", EXCEPTION | {"dump_op_switch": "off"}, EXCEPTION),
    Case("exception.others", "$.dump.dump_list", EXCEPTION | {"dump_list": []}, EXCEPTION),
    Case("exception.disk", "$.dump.dump_scene", EXCEPTION, WATCHED),
    Case("exception.detail", "$.dump.dump_scene", {"dump_scene": "aic_err_detail_dump"}, EXCEPTION),
    Case("watch.debug", "$.dump.dump_debug", WATCHED | {"dump_debug": "on"}, WATCHED | {"dump_debug": "off"}),
    Case("watch.op_switch", "$.dump.dump_op_switch", WATCHED | {"dump_op_switch": "on"}, WATCHED),
    Case("watch.mode", "$.dump.dump_mode", WATCHED | {"dump_mode": "all"}, WATCHED | {"dump_mode": "output"}),
    Case(
        "watch.nodes", "$.dump.dump_list[0].watcher_nodes", WATCH | {"dump_list": [{"layer": ["A"]}]}, WATCHED
    ),
    Case(
        "watch.model_name",
        "$.dump.dump_list[0].model_name",
        WATCH | {"dump_list": [{"watcher_nodes": ["C"], "model_name": "m"}]},
        WATCHED,
    ),
    Case("watch.scene", "$.dump.dump_list[0].watcher_nodes", listed(watcher_nodes=["C"]), WATCHED),
    Case("watch.list", "$.dump.dump_list", WATCH, WATCHED),
    Case("watch.others", "$.dump.dump_level", WATCHED | {"dump_level": "op"}, WATCHED),
    Case(
        "watch.replaced",
        "$.dump.dump_list[0]",
        WATCH | {"dump_list": [{"watcher_nodes": ["C"]}] * 2},
        WATCHED,
    ),
    Case(
        "watch.layer", "$.dump.dump_list[0].layer", WATCH | {"dump_list": [{"watcher_nodes": ["C"]}]}, WATCHED
    ),
    Case(
        "watch.same_name",
        "$.dump.dump_list[0].layer[1]",
        WATCH | {"dump_list": [{"layer": ["A", "C"], "watcher_nodes": ["C"]}]},
        WATCHED,
    ),
    Case("watch.graph", "$.dump.dump_scene", WATCHED, EXCEPTION),
    Case("key.unknown", "$.dump.dump_pth", ALL | {"dump_pth": "x"}, ALL | {"dump_status": "on"}),
    Case(
        "key.unknown",
        "$.dump.dump_list[0].opname_range[0]['a b']",
        listed(model_name="m", opname_range=[RANGE | {"a b": 1}]) | {"dump_level": "op"},
        ALL,
    ),
    Case("key.ignored", "$.dump.dump_status", ALL | {"dump_status": "on"}, ALL),
    Case("nothing.configured", "$.dump", {}, ALL),
    Case("nothing.selected", "$.dump.dump_list", PATH | {"dump_list": []}, PATH | {"dump_op_switch": "on"}),
    Case("kernel_data.alone", "$.dump.dump_kernel_data", PATH | {"dump_kernel_data": "all"}, ALL),
    Case("kernel_data.release", "$.dump.dump_kernel_data", ALL | {"dump_kernel_data": "all"}, ALL),
    Case("level.default", "$.dump.dump_level", ALL, ALL | {"dump_level": "all"}),
    Case("data.private", "$.dump", ALL, ALL | {"dump_data": "stats"}),
]

#: Found while reading the file, or in the environment: their tests are not here.
ELSEWHERE = {
    "file.path",
    "file.size",
    "file.depth",
    "file.json",
    "file.repeated_key",
    "environment.collect",
}


def check(dump: object, *, strict: bool = False, **environment: str) -> Check:
    return check_bytes(json.dumps({"dump": dump}).encode(), strict=strict, environment=environment)


def places(checked: Check, rule: str) -> list[str]:
    return [problem.path for problem in checked.problems if problem.rule == rule]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.path}")
def test_broken_rule_is_found_at_its_place(case: Case) -> None:
    checked = check(case.broken)

    assert places(checked, case.rule) == [case.path]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.path}")
def test_kept_rule_is_silent_and_the_file_accepted(case: Case) -> None:
    checked = check(case.kept)

    assert not places(checked, case.rule)
    assert not checked.errors
    assert checked.config is not None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.path}")
def test_a_rule_is_an_error_as_far_as_the_source_refuses(case: Case) -> None:
    rule = BY_ID[case.rule]
    sure = rule.refuses and rule.origin in (Origin.SOURCE, Origin.BOTH)

    lax, strict = (
        [
            problem.is_error
            for problem in check(case.broken, strict=strict).problems
            if problem.rule == case.rule
        ]
        for strict in (False, True)
    )

    assert lax == [sure]
    assert strict == [rule.refuses]


def test_every_rule_has_its_case() -> None:
    assert {case.rule for case in CASES} | ELSEWHERE == {rule.id for rule in RULES}
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_refusal_of_the_source_has_its_code(rule: Rule) -> None:
    if rule.refuses and rule.origin != Origin.DOCUMENTS:
        assert rule.acl_error in (100003, 100006, 100009)
        assert (rule.message_class is None) == rule.id.startswith(("file.path", "file.size", "file.depth"))
    else:
        assert rule.acl_error is None


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.origin is Origin.DOCUMENTS and rule.refuses])
def test_a_rule_of_the_documents_names_both_sides(rule: Rule) -> None:
    assert "the documents" in rule.message
    assert "the source" in rule.message


def test_all_problems_come_at_once_errors_first() -> None:
    checked = check(
        {
            "dump_list": [{"model_name": "", "layer": [1]}, 5],
            "dump_mode": "al",
            "dump_step": "x|2-1",
            "dump_stats": ["max"],
        }
    )

    assert [(problem.rule, problem.path) for problem in checked.errors] == [
        ("type.string", "$.dump.dump_list[0].layer[0]"),
        ("type.object", "$.dump.dump_list[1]"),
        ("value.choice", "$.dump.dump_mode"),
        ("value.choice", "$.dump.dump_stats[0]"),
        ("path.missing", "$.dump.dump_path"),
        ("list.model_name", "$.dump.dump_list[0].model_name"),
        ("step.syntax", "$.dump.dump_step"),
        ("step.syntax", "$.dump.dump_step"),
        ("stats.data", "$.dump.dump_stats"),
    ]
    assert list(checked.problems) == [*checked.errors, *checked.warnings]
    assert checked.config is None


def test_what_follows_from_a_wrong_value_is_no_second_problem() -> None:
    checked = check(WATCH | {"dump_path": 5, "dump_list": [None]})

    assert [problem.rule for problem in checked.errors] == ["type.string", "type.object"]


@pytest.mark.parametrize("text", [b"", b"{}", b'{"dump": {}}', b'{"profiler": {"switch": "on"}}'])
def test_a_file_without_settings_is_accepted_and_dumps_nothing(text: bytes) -> None:
    checked = check_bytes(text, environment={})

    assert [problem.rule for problem in checked.problems] == ["nothing.configured"]
    assert checked.config is not None
    assert checked.config.dump.modes == ()


def test_exception_dumps_need_no_path_and_look_at_no_selection() -> None:
    checked = check(EXCEPTION | {"dump_path": "/no/such/directory", "dump_step": "x", "dump_stats": []})

    assert not checked.errors


def test_overflow_dumps_look_at_no_selection() -> None:
    checked = check(OVERFLOW | {"dump_step": "x", "dump_stats": ["Max"]})

    assert not checked.errors


@pytest.mark.parametrize("path", ["$HOME/output", "~/output"])
def test_a_path_that_only_a_shell_would_expand_is_told_so(path: str) -> None:
    (problem,) = check(ALL | {"dump_path": path}).errors

    assert problem.rule == "path.directory"
    assert "CANN expands neither variables nor ~" in problem.text


def test_overflow_dumps_accept_a_list_unless_the_check_is_strict() -> None:
    section = json.dumps({"dump": OVERFLOW | {"dump_list": [{"layer": ["a"]}]}}).encode()

    assert check_bytes(section).errors == ()
    assert [problem.rule for problem in check_bytes(section, strict=True).errors] == ["overflow.list"]


def test_a_list_is_mandatory_only_by_the_documents() -> None:
    section = json.dumps({"dump": PATH | {"dump_op_switch": "on"}}).encode()

    (problem,) = check_bytes(section, strict=True).errors
    assert check_bytes(section).errors == ()
    assert "mandatory by the documents" in problem.text


def test_collecting_environment_is_a_warning_only_where_data_is_dumped() -> None:
    data, overflow = (check(dump, NPU_COLLECT_PATH="/x") for dump in (ALL, OVERFLOW))

    assert places(data, "environment.collect") == ["$.dump"]
    assert not places(overflow, "environment.collect")


def test_a_misspelt_key_is_told_what_may_be_meant() -> None:
    [problem] = [
        problem for problem in check(ALL | {"dump_lvel": "op"}).problems if problem.rule == "key.unknown"
    ]

    assert problem.remedy == "write 'dump_level' if that was meant"
    assert not problem.is_error


def test_messages_show_what_is_in_the_file() -> None:
    [problem] = check(ALL | {"dump_mode": "{0}"}).errors

    assert problem.text == "'{0}' is not among the choices; write 'input', 'output' or 'all'"


def documented(rule: Rule) -> str:
    """Return the row of the table in the documentation."""
    certain = rule.origin in (Origin.SOURCE, Origin.BOTH)
    severity = ("error" if certain else "error with `--strict`") if rule.refuses else "warning"
    answer = ", ".join(str(part) for part in (rule.acl_error, rule.message_class) if part)
    message = re.sub(r"\{[^}]*\}", "...", rule.message)
    return f"| `{rule.id}` | `{rule.path}` | {message} | {rule.origin} | {severity} | {answer} |"


def test_the_documentation_has_every_rule_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs/config.md").read_text("utf-8")

    rows = re.findall(r"^\| `[a-z_]+\.[a-z_]+` .*$", page, re.MULTILINE)

    assert rows == [documented(rule) for rule in RULES]
