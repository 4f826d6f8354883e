"""What the documents must describe, taken from the code."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from importlib.metadata import entry_points
from inspect import isfunction
from pathlib import Path

import pytest

from dumpstream import AclCode, DumpstreamError, Lifecycle, Verdict, _errors, _native
from dumpstream.cli.grammar.parser import make_parser
from dumpstream.format import overflowrecord as overflow
from dumpstream.reading.problem import Kind
from dumpstream.simulation import PRESETS, Workload
from dumpstream.stages.options import CaptureOptions
from dumpstream.stages.report import Report

_ROOT = Path(__file__).parent.parent
_DOCS = _ROOT / "docs"
_PAGES = [*_ROOT.glob("*.md"), *_DOCS.glob("*.md")]

#: The causes that the pipeline adds to those of the callback.
_PIPELINE_CAUSES = (
    "sink_failed",
    "source_failed",
    "no_memory",
    "drain_timeout",
    "spill_full",
    "cancelled",
    "collector_died",
    "late",
    "too_many_pieces",
    "too_many_open",
)


def _commands() -> dict[str, argparse.ArgumentParser]:
    actions = make_parser()._actions
    return next(dict(action.choices) for action in actions if isinstance(action, argparse._SubParsersAction))


def _section(page: str, heading: str) -> str:
    text = (_DOCS / page).read_text("utf-8")
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {heading!r}"
    return found[1]


def _shared_flags() -> str:
    """Return the text about the flags that commands share."""
    text = (_DOCS / "cli.md").read_text("utf-8")
    return text.partition("### The screen\n")[2].partition("\n### ")[0]


def _undescribed(words: list[str], text: str) -> list[str]:
    """Return the *words* that *text* does not have in code style, alone or before arguments."""
    return [word for word in words if not re.search(rf"`{re.escape(word)}[` \[{{]", text)]


@pytest.mark.parametrize("command", _commands())
def test_every_flag_is_in_the_section_of_its_command(command: str) -> None:
    actions = _commands()[command]._actions
    flags = [flag for action in actions for flag in action.option_strings if flag not in ("-h", "--help")]

    text = _section("cli.md", command) + _shared_flags()

    missing = [flag for flag in flags if not re.search(rf"`{flag}[` ]|\[{flag}\]", text)]
    assert not missing


@pytest.mark.parametrize("command", _commands())
def test_no_flag_is_described_that_does_not_exist(command: str) -> None:
    actions = _commands()[command]._actions
    flags = {flag for action in actions for flag in action.option_strings}

    described = set(re.findall(r"^\| `(--[a-z-]+)", _section("cli.md", command), re.MULTILINE))

    assert described <= flags


def test_every_choice_of_a_flag_is_described() -> None:
    text = _section("cli.md", "capture") + _shared_flags()

    for action in _commands()["capture"]._actions:
        if action.choices:
            assert f"{action.option_strings[0]} {{{','.join(map(str, action.choices))}}}" in text


def test_every_cause_of_a_loss_has_its_remedy() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", _section("guarantees.md", "Losses"), re.MULTILINE)

    assert sorted(rows) == sorted([*_native.CAUSES, *_PIPELINE_CAUSES])


def test_every_verdict_is_explained_in_the_order_in_which_they_apply() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", _section("guarantees.md", "Verdicts"), re.MULTILINE)

    assert rows == [str(verdict) for verdict in Verdict]


def test_every_error_is_explained() -> None:
    errors = [
        name
        for name, value in vars(_errors).items()
        if isinstance(value, type) and issubclass(value, DumpstreamError)
    ]

    assert len(errors) > 1
    assert not _undescribed(
        [name for name in errors if name != "DumpstreamError"], _section("guarantees.md", "Errors")
    )


def test_every_code_of_acl_is_in_the_table() -> None:
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \| (.+?) \| (.+) \|$", _section("lifecycle.md", "Error codes"), re.MULTILINE
    )

    assert rows == [(str(int(code)), code.acl_name, code.meaning, code.remedy) for code in AclCode]


def test_every_call_of_the_lifecycle_has_its_rule() -> None:
    calls = [
        name for name, value in vars(Lifecycle).items() if isfunction(value) and not name.startswith("_")
    ]

    assert len(calls) > 1
    assert not _undescribed(
        calls, _section("lifecycle.md", "The rules") + _section("lifecycle.md", "Three flows")
    )


def test_every_option_has_its_bound() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", _section("guarantees.md", "Bounds on memory and disk"), re.MULTILINE)

    assert sorted(rows) == sorted(CaptureOptions.__annotations__)


def test_every_installed_sink_is_described() -> None:
    ours = [
        point.name
        for point in entry_points(group="dumpstream.sinks")
        if point.value.startswith("dumpstream.")
    ]

    assert ours
    assert not _undescribed([f"{name}:" for name in ours], _section("sinks.md", "The built-in ones"))


def test_every_kind_of_problem_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", _section("cli.md", "verify"), re.MULTILINE)

    assert sorted(rows) == sorted(Kind)


def test_every_kind_of_a_segment_is_described() -> None:
    assert not _undescribed(list(overflow._KINDS.values()), _section("modes.md", "The AI Core stopped"))


def test_every_figure_of_a_report_is_named() -> None:
    assert not _undescribed(list(Report(seconds=1).as_dict()), _section("cli.md", "capture"))


def test_every_preset_and_key_of_a_workload_is_described() -> None:
    workloads, faults = _section("simulation.md", "Workloads"), _section("simulation.md", "Faults")
    words = [*PRESETS, *(field.name for field in fields(Workload))]

    assert not _undescribed(words, workloads + faults)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)

    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            assert anchor in [
                re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
            ]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_table_has_a_header_and_rows_of_its_width(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)

    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, *rows = table.splitlines()
        assert rows, header
        assert re.fullmatch(r"\|(-+\|)+", rows[0]), header
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(re.findall(r"\|", header))}


def test_changelog_has_each_kind_of_change_once_and_in_order() -> None:
    changelog = (_ROOT / "CHANGELOG.md").read_text("utf-8")

    for version in changelog.split("\n## ")[1:]:
        intro, *kinds = version.split("\n### ")
        assert "\n- " not in intro
        titles = [kind.partition("\n")[0] for kind in kinds]
        assert titles == [title for title in ("Added", "Changed", "Fixed") if title in titles]
        entries = [entry.strip() for kind in kinds for entry in kind.split("\n- ")[1:]]
        assert len(set(entries)) == len(entries)
