from __future__ import annotations

import pytest

from dumpstream.cli import main
from dumpstream.cli.grammar.formatter import HelpFormatter
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
                *("      does", "      this", "  another", "      one"),
            ],
        ),
    ],
)
def test_examples_are_set_closer_and_then_below(width: int, lines: list[str]) -> None:
    formatter = HelpFormatter("dumpstream")

    assert formatter._fill_text(_TEXT, width, "").splitlines() == lines
