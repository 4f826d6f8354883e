"""One command shows each mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream.cli import main
from dumpstream.config import check_file
from dumpstream.format.opname import Scheme, parse_name
from dumpstream.reading.stored import StoredCapture
from dumpstream.simulation import PRESETS, Workload

if TYPE_CHECKING:
    from pathlib import Path


def simulate(preset: str, path: Path) -> set[str]:
    """Capture a preset; return the names of the operators in its files."""
    assert main(["capture", "--out", str(path), "--simulate", preset, "--buffer-bytes", "4M"]) == 0
    return {parse_name(file.name).op_name or "" for file in StoredCapture.open(path).files}


def test_overflow_captures_what_overflows_with_its_records(tmp_path: Path) -> None:
    simulate("overflow", tmp_path / "run")

    schemes = [parse_name(file.name).scheme for file in StoredCapture.open(tmp_path / "run").files]
    assert schemes.count(Scheme.OVERFLOW) == schemes.count(Scheme.MODEL) > 1


def test_watch_captures_what_is_watched(tmp_path: Path) -> None:
    names = simulate("watch", tmp_path / "run")

    assert {name.rpartition("_To_")[2] for name in names} == {"layer_2_LayerNorm", "layer_3_Add"}


def test_exception_captures_nothing_and_says_where_its_dumps_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    operators = simulate("exception", tmp_path / "run")

    said = "2 exception dumps went to disk: extra-info/data-dump/0\n"
    assert operators == set()
    assert capsys.readouterr().err.endswith(said)
    assert len(list((tmp_path / "extra-info/data-dump/0").iterdir())) == 2


@pytest.mark.parametrize("preset", PRESETS)
def test_the_configuration_of_every_preset_is_sound(tmp_path: Path, preset: str) -> None:
    path = tmp_path / "acl.json"
    path.write_text(Workload.parse(preset).config(tmp_path))

    assert check_file(path).errors == ()


def test_a_mode_must_be_known() -> None:
    with pytest.raises(ValueError, match="mode=all: must be model or overflow or watch or exception"):
        Workload.parse("mode=all")
