from __future__ import annotations

import io
from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from dumpstream.cli.screen.colour import Style, style_of, styled
from dumpstream.cli.screen.options import is_coloured, use_screen
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    yield
    use_screen(Namespace())


@pytest.mark.parametrize(
    ("variables", "flag", "on_terminal", "in_pipe"),
    [
        ({}, "auto", True, False),
        ({}, "always", True, True),
        ({}, "never", False, False),
        ({"NO_COLOR": "1"}, "auto", False, False),
        ({"NO_COLOR": ""}, "auto", True, False),
        ({"NO_COLOR": "1"}, "always", True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, "auto", False, False),
        ({"FORCE_COLOR": "1"}, "auto", True, True),
        ({"FORCE_COLOR": "0"}, "auto", True, False),
        ({"FORCE_COLOR": "1"}, "never", False, False),
        ({"CLICOLOR_FORCE": "1"}, "auto", True, True),
        ({"CLICOLOR": "0"}, "auto", False, False),
        ({"TERM": "dumb"}, "auto", False, False),
        ({"TERM": ""}, "auto", False, False),
    ],
)
def test_colours_are_as_the_flag_and_then_the_environment_say(
    variables: dict[str, str],
    flag: str,
    on_terminal: bool,  # noqa: FBT001
    in_pipe: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    use_screen(Namespace(color=flag))

    assert is_coloured(_Terminal()) is on_terminal
    assert is_coloured(io.StringIO()) is in_pipe
    assert ("\x1b" in styled("x", Style.BAD, _Terminal())) is on_terminal


def test_verdicts_that_are_not_whole_are_never_good() -> None:
    assert {verdict: style_of(str(verdict)) is Style.BAD for verdict in Verdict} == {
        verdict: not verdict.whole for verdict in Verdict
    }
