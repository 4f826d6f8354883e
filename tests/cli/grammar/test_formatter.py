from __future__ import annotations

import pytest

from dumpstream.cli import main
from dumpstream.cli.grammar.formatter import HelpFormatter
from dumpstream.cli.grammar.parser import GROUPS
from dumpstream.cli.grammar.words import read_grammar


def _help(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("words", [it.words for it in read_grammar().everything()], ids=" ".join)
def test_help_is_no_wider_than_the_terminal(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert [line for line in _help(capsys, *words) if len(line) > 80] == []


def test_every_command_has_its_line_beside_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = _help(capsys)

    beside = {
        line[: line.index(it.line)].strip()
        for it in read_grammar().below
        for line in lines
        if it.line in line
    }

    assert beside == {it.words[0] for it in read_grammar().below}


def test_commands_stand_below_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _help(capsys)
    first = lines.index("commands:") + 1
    found: dict[str, list[str]] = {}
    for line in lines[first : lines.index("exit codes:")]:
        if line.startswith("  ") and line.endswith(":"):
            title = line.strip(" :")
            found[title] = []
        elif line[:4].isspace() and line[4:5].isalpha():
            found[title].append(line.split()[0])

    assert found == {title: [*commands] for title, commands in GROUPS.items()}


_TEXT = """\
Some words that are long.
More of them.

examples:
  one         does this
  another one
"""


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (40, _TEXT.splitlines()),
        (
            23,
            [
                "Some words that are",
                "long. More of them.",
                "",
                "examples:",
                "  one         does this",
                "  another one",
            ],
        ),
        (
            18,
            [
                "Some words that",
                "are long. More of",
                "them.",
                "",
                "examples:",
                "  one  does this",
                "  another one",
            ],
        ),
        (
            12,
            [
                *("Some words", "that are", "long. More", "of them.", "", "examples:", "  one"),
                *("      does", "      this", "  another", "          one"),
            ],
        ),
    ],
)
def test_examples_are_set_closer_and_then_below(width: int, lines: list[str]) -> None:
    formatter = HelpFormatter("dumpstream")

    assert formatter._fill_text(_TEXT, width, "").splitlines() == lines


def test_what_a_long_example_does_is_not_taken_for_a_part_of_it() -> None:
    text = f"  command --flag value one two\n{' ' * 32}what it does\n  other{' ' * 25}does that\n"
    formatter = HelpFormatter("dumpstream")

    assert formatter._fill_text(text, 60, "").splitlines() == text.splitlines()
    assert formatter._fill_text(text, 24, "").splitlines() == [
        "  command --flag value",
        "          one two",
        "      what it does",
        "  other",
        "      does that",
    ]
