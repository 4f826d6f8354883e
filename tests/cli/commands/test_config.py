from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dumpstream.cli import main
from dumpstream.cli.commands import config

ENVIRONMENT = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "ASCEND_DUMP_SCENE", "NPU_COLLECT_PATH")


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> int:
    return main(["config", *arguments])


def write(dump: dict[str, Any], name: str = "acl.json") -> str:
    Path(name).write_text(json.dumps({"dump": dump}))
    return name


GOOD = {"dump_path": ".", "dump_list": [{}], "dump_level": "op"}
BAD = {"dump_list": [{}], "dump_mode": "both"}
DOCUMENTED = {"dump_scene": "lite_exception", "dump_list": [{}]}


def test_accepted_file_exits_0_although_there_are_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("check", write(GOOD))

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        (
            "acl.json: warning: $.dump: tensors may hold private data; "
            "keep the files where only you can read them [data.private]"
        ),
        "accepted: 0 errors, 1 warning",
    ]


def test_refused_file_exits_1_with_every_error(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("check", write(BAD))

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[0] == (
        "acl.json: error: $.dump.dump_mode: 'both' is not among the choices; "
        "write 'input', 'output' or 'all' [value.choice: CANN says 100009, EP0002]"
    )
    assert lines[1].startswith("acl.json: error: $.dump.dump_path: dump_path is missing; ")
    assert lines[-1] == "refused: 2 errors, 2 warnings"


def test_strict_refuses_what_only_the_documents_refuse() -> None:
    name = write(DOCUMENTED)

    assert run("check", name) == 0
    assert run("check", name, "--strict") == 1


def test_json_has_every_field_of_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("check", write(BAD), "--json")

    printed = json.loads(capsys.readouterr().out)
    assert code == 1
    assert printed["accepted"] is False
    assert printed["problems"][0] == {
        "severity": "error",
        "rule": "value.choice",
        "path": "$.dump.dump_mode",
        "message": "'both' is not among the choices",
        "remedy": "write 'input', 'output' or 'all'",
        "origin": "both",
        "acl_error": 100009,
        "message_class": "EP0002",
    }


def test_missing_file_is_refused_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("check", "missing.json")

    assert code == 1
    assert "No such file or directory" in capsys.readouterr().out


def test_control_characters_of_a_file_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run("check", write(GOOD | {"\x1b[2J": 1}))

    assert "\x1b" not in capsys.readouterr().out


def test_explain_says_what_where_and_at_what_cost(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("explain", write(GOOD))

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "what   All operators of all models.",
        "what   Of each: outputs, in files of operators.",
        "what   In every step.",
        "where  Through the callback if one is registered, else to ./TIME/DEVICE/.",
        "where  No environment variable changes that.",
        "cost   Up to 1 file for each operator in each step.",
        "cost   There is no end to the steps.",
        "cost   As many bytes as the tensors have; 8 GB to 2 TB for each card and step have been seen.",
        "note   $.dump: tensors may hold private data; keep the files where only you can read them",
    ]


def test_explain_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", "work")

    run("explain", write({"dump_scene": "aic_err_norm_dump"}))

    assert "to work/extra-info/data-dump/DEVICE/, from ASCEND_WORK_PATH" in capsys.readouterr().out


def test_explain_refuses_what_cann_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("explain", write(BAD))

    captured = capsys.readouterr()
    assert code == 1
    assert captured.out == ""
    assert captured.err.count("dumpstream: acl.json: error: ") == 2


def test_explain_says_for_each_operator_whether_it_is_dumped(capsys: pytest.CaptureFixture[str]) -> None:
    name = write(GOOD | {"dump_list": [{"layer": ["a"]}]})
    Path("ops.json").write_text('[{"name": "a"}, {"name": "b"}]')

    code = run("explain", name, "--ops", "ops.json")

    assert code == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "dumped  a: layer names it, for all models",
        "not     b: layer does not name it, for all models",
        "1 of 2 operators dumped",
    ]


def test_explain_counts_the_operators_that_depend_on_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    name = write(GOOD | {"dump_list": [{"layer": ["a"]}], "dump_step": "1"})
    Path("ops.json").write_text('[{"name": "a"}, {"name": "b"}, {"name": "a", "model": "m", "step": 1}]')

    run("explain", name, "--ops", "ops.json")

    assert capsys.readouterr().out.splitlines()[-4:] == [
        "depends a: layer names it, for all models, only in the steps 1",
        "not     b: layer does not name it, for all models",
        "dumped  a: layer names it, for all models",
        "1 of 3 operators dumped, 1 perhaps",
    ]


def test_new_refuses_a_selection_of_overflows_which_would_dump_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run("new", "--mode", "overflow", "--dump-path", ".", "--layer", "a", "--out", "new.json")

    assert code == 2
    assert "--mode overflow takes no --model, --layer" in capsys.readouterr().err
    assert not Path("new.json").exists()


def test_explain_counts_the_dumps_of_watched_operators(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"layer": ["a", "a", "sum"], "watcher_nodes": ["c"]}
    name = write({"dump_path": ".", "dump_scene": "watcher", "dump_list": [item]})
    ops = [
        {"name": "a"},
        {"name": "sum", "type": "HcomAllReduce"},
        {"name": "c"},
        {"name": "c", "model": "m"},
    ]
    Path("ops.json").write_text(json.dumps(ops))

    code = run("explain", name, "--ops", "ops.json")

    assert code == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "2 of 4 operators dumped",
        "3 dumps of watched operators in a step",
    ]


@pytest.mark.parametrize("content", [None, "{}", "[{}]", "layer_1"])
def test_unreadable_operators_are_reported_in_one_line(
    content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("ops.json").write_text(content)

    code = run("explain", write(GOOD), "--ops", "ops.json")

    assert code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dumpstream: ops.json ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--mode", "model", "--dump-path", "."], {"dump_path": ".", "dump_list": [{}]}),
        (
            ["--mode", "model", "--dump-path", ".", "--model", "m", "--layer", "a", "--layer", "b"],
            {"dump_path": ".", "dump_list": [{"model_name": "m", "layer": ["a", "b"]}]},
        ),
        (
            [
                "--mode",
                "model",
                "--dump-path",
                ".",
                "--model",
                "m",
                "--level",
                "op",
                "--range",
                "a",
                "b",
                "--skip-type",
                "Conv2D",
                "input0,input1",
                "--skip-name",
                "c",
                "output0",
                "--dump-mode",
                "all",
                "--step",
                "0|3-5",
            ],
            {
                "dump_path": ".",
                "dump_list": [
                    {
                        "model_name": "m",
                        "optype_blacklist": [{"name": "Conv2D", "pos": ["input0", "input1"]}],
                        "opname_blacklist": [{"name": "c", "pos": ["output0"]}],
                        "opname_range": [{"begin": "a", "end": "b"}],
                    }
                ],
                "dump_mode": "all",
                "dump_level": "op",
                "dump_step": "0|3-5",
            },
        ),
        (
            [
                "--mode",
                "op",
                "--dump-path",
                ".",
                "--data",
                "stats",
                "--stats",
                "Max,L2norm",
                "--kernel-data",
                "printf",
            ],
            {
                "dump_path": ".",
                "dump_list": [{}],
                "dump_op_switch": "on",
                "dump_data": "stats",
                "dump_stats": ["Max", "L2norm"],
                "dump_kernel_data": "printf",
            },
        ),
        (["--mode", "exception"], {"dump_scene": "aic_err_brief_dump"}),
        (["--mode", "exception", "--scene", "aic_err_norm_dump"], {"dump_scene": "aic_err_norm_dump"}),
        (["--mode", "overflow", "--dump-path", "."], {"dump_path": ".", "dump_debug": "on"}),
        (
            ["--mode", "watch", "--dump-path", ".", "--layer", "A", "--watch", "C"],
            {
                "dump_path": ".",
                "dump_list": [{"layer": ["A"], "watcher_nodes": ["C"]}],
                "dump_scene": "watcher",
            },
        ),
    ],
)
def test_new_writes_a_configuration_that_is_accepted(arguments: list[str], expected: dict[str, Any]) -> None:
    code = run("new", *arguments, "--out", "new.json")

    assert code == 0
    assert json.loads(Path("new.json").read_text()) == {"dump": expected}
    assert run("check", "new.json") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mode", "model"],
        ["--mode", "watch", "--dump-path", "."],
        ["--mode", "model", "--dump-path", ".", "--step", "x"],
        ["--mode", "model", "--dump-path", ".", "--range", "a", "b"],
    ],
)
def test_new_writes_nothing_that_would_be_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("new", *arguments, "--out", "new.json")

    assert code == 1
    assert "new.json: error: $.dump" in capsys.readouterr().err
    assert not Path("new.json").exists()


def test_a_scene_of_another_mode_is_wrong_usage() -> None:
    assert (
        run("new", "--mode", "model", "--dump-path", ".", "--scene", "lite_exception", "--out", "new.json")
        == 2
    )
    assert not Path("new.json").exists()


def test_new_replaces_a_file_only_by_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.json").write_text("mine")

    first = run("new", "--mode", "exception", "--out", "new.json")
    kept = Path("new.json").read_text()
    second = run("new", "--mode", "exception", "--out", "new.json", "--force")

    assert (first, kept, second) == (1, "mine", 0)
    assert "dumpstream: new.json is there already; --force replaces it" in capsys.readouterr().err
    assert json.loads(Path("new.json").read_text()) == {"dump": {"dump_scene": "aic_err_brief_dump"}}


def test_a_place_that_cannot_be_written_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("new", "--mode", "exception", "--out", "no/such/new.json") == 1
    assert "dumpstream: no/such/new.json cannot be written" in capsys.readouterr().err


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("schema")

    assert code == 0
    assert json.loads(capsys.readouterr().out)["title"] == "AclConfig"


@pytest.mark.parametrize("arguments", [[], ["verify"], ["check"], ["new", "--mode", "x", "--out", "y"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        run(*arguments)

    assert exited.value.code == 2


def test_capture_refuses_a_bad_configuration_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["capture", "--out", "run1", "--simulate", "--config", write(BAD)])

    captured = capsys.readouterr()
    assert code == 1
    assert captured.err.count("dumpstream: acl.json: error: $.dump.") == 2
    assert captured.out == ""
    assert not Path("run1").exists()


def test_capture_runs_with_a_configuration_that_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("npu").mkdir()

    code = main(["capture", "--out", "run1", "--simulate", "--config", write(GOOD | {"dump_path": "npu"})])

    assert code == 0
    assert "warning" not in capsys.readouterr().err


def test_a_capture_without_a_configuration_does_not_wait_for_pydantic() -> None:
    code = (
        "import sys; from dumpstream.cli import main; main(['capture', '--out', 'run1', '--', 'true']); "
        "print('pydantic' in sys.modules)"
    )

    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output == "False\n"


def test_every_flag_of_every_action_is_documented() -> None:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    actions = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    page = Path(__file__).parents[3] / "docs/cli.md"

    found = re.search(r"^## config\n(.*?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)

    assert found
    for name, action in actions.choices.items():
        flags = [flag for option in action._actions for flag in option.option_strings]
        missing = [flag for flag in flags if flag not in ("-h", "--help") and f"`{flag}" not in found[1]]
        assert not missing, name
