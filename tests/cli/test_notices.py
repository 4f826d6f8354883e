"""What is said while a command runs, as the library logs it."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from dumpstream.cli import main
from dumpstream.cli._notices import notices_said

if TYPE_CHECKING:
    from pathlib import Path


def test_the_same_words_are_said_once_until_some_time_has_passed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("dumpstream.test")
    with notices_said():
        for text in ("away", "away", "back", "away"):
            log.warning(text)
        monkeypatch.setattr("dumpstream.cli._notices._AGAIN_S", 0)
        log.warning("away")
    log.warning("later")

    assert capsys.readouterr().err == "dumpstream: away\ndumpstream: back\ndumpstream: away\n"


@pytest.mark.parametrize(
    ("dump", "warning"),
    [
        ({"dump_list": []}, "nothing is dumped: dump_list is empty and no switch is on; write"),
        ({"dump_op_switch": "off"}, "nothing is dumped: dump_list is empty and no switch is on; write"),
        ({"dump_debug": "on", "dump_list": [{}]}, "the graph engine dumps nothing; remove one of them"),
        ({"dump_scene": "lite_exception"}, "exception dumps go to disk, never through the callback"),
        ({"dump_list": [{}]}, None),
    ],
    ids=["list", "switch", "overflow", "exception", "something"],
)
def test_a_configuration_that_dumps_nothing_is_told_when_the_capture_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dump: dict[str, Any], warning: str | None
) -> None:
    (tmp_path / "npu").mkdir()
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"dump": {"dump_path": str(tmp_path / "npu"), **dump}}))

    words = ["capture", "--out", tmp_path / "run", "--config", config, "--simulate", "ops=1,tensor_bytes=64"]
    main([str(word) for word in words])

    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith(f"dumpstream: {config}: ")]
    assert [str(warning) in line for line in told] == ([] if warning is None else [True])


def test_a_capture_of_nothing_is_a_failure_if_a_dump_is_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "npu").mkdir()
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"dump": {"dump_path": str(tmp_path / "npu"), "dump_list": []}}))
    words = ["capture", "--out", str(tmp_path / "run"), "--config", str(config), "--simulate", "ops=1"]

    assert main([*words, "--require-dump"]) == 3
    assert "nothing was captured, and --require-dump asks for a dump" in capsys.readouterr().err
