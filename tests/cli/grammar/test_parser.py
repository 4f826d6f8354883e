from __future__ import annotations

import pytest

from dumpstream.cli import main


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize("arguments", [(), ("config",)])
def test_without_a_command_help_is_printed_and_the_usage_is_wrong(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().out.startswith("usage: dumpstream")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["verfy", "run1"],
            "there is no command 'verfy'; did you mean verify? `dumpstream --help` lists all",
        ),
        (["xyzzy"], "there is no command 'xyzzy'; `dumpstream --help` lists all"),
        (
            ["config", "chek", "acl.json"],
            "there is no command 'chek'; did you mean check? `dumpstream config --help` lists all",
        ),
        (
            ["verify", "run1", "--depe"],
            "there is no flag --depe; did you mean --deep? `dumpstream verify --help` lists all",
        ),
        (
            ["extract", "run1", "--ouput=dumps"],  # the flag that is missing is not the mistake
            "there is no flag --ouput; did you mean --out? `dumpstream extract --help` lists all",
        ),
        (
            ["verfy\x1b[2J"],
            "there is no command 'verfy\\x1b[2J'; did you mean verify? `dumpstream --help` lists all",
        ),
    ],
)
def test_mistyped_word_gets_the_likely_one(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(capsys, *arguments) == f"dumpstream: {line}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["ls"], "the following arguments are required: CAPTURE; `dumpstream ls --help` explains"),
        (
            ["ls", "run1", "--rank", "one"],
            "argument --rank: 'one' is not a whole number; `dumpstream ls --help` explains",
        ),
        (
            ["capture", "--out", "run1", "--block-timeout", "long"],
            "argument --block-timeout: 'long' is not a number; `dumpstream capture --help` explains",
        ),
        (
            ["capture", "--out", "run1", "--fsync", "never"],
            (
                "argument --fsync: there is no 'never'; choose from none, file, capture; "
                "`dumpstream capture --help` explains"
            ),
        ),
        (["verify", "run1", "run2"], "run2 is too much; `dumpstream verify --help` explains"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _refused(capsys, *arguments) == f"dumpstream: {line}\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["collect", "--on-full", "wait"], "--on-full: there is no 'wait'; choose from block, drop"),
        (["convert", "run1", "--names", "xml"], "--names: there is no 'xml'; choose from dumpstream, cann"),
        (["completion", "tcsh"], "SHELL: there is no 'tcsh'; choose from bash, zsh, fish"),
    ],
)
def test_wrong_choice_gets_the_right_ones(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explained = f"`dumpstream {arguments[0]} --help` explains"

    assert _refused(capsys, *arguments) == f"dumpstream: argument {problem}; {explained}\n"


def test_flags_of_a_captured_command_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["capture", "--help", "--", "python", "--no-such-flag"])

    assert capsys.readouterr().err == ""


def test_beginning_of_a_flag_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--js", "no/such/run"]) == 1
    assert "there is no flag" not in capsys.readouterr().err
