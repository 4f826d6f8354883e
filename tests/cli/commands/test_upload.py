from __future__ import annotations

from typing import TYPE_CHECKING

from dumpstream.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_directory_that_is_not_there_is_not_one_where_nothing_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(tmp_path / "mistyped")]) == 1
    assert "there is no directory" in capsys.readouterr().err
    assert main(["upload", str(tmp_path)]) == 0
    assert "nothing waits" in capsys.readouterr().out


def test_state_directory_need_not_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    assert main(["upload"]) == 0
    assert "nothing waits" in capsys.readouterr().out
