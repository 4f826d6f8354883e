"""Captures as 0.1.0 wrote them: every reading command says of them what 0.1.0 said.

The archive holds five: *ranks* (two processes captured from outside, one of them killed; packs, losses and
Parquet statistics), *faults* (two runs, statistics as CSV), *overflow*, *watch*, and *store* (the objects of
a capture in an object store). Its ``answers.json`` has the exit codes and the output of 0.1.0's commands, and
the checksums of what they wrote. It is never made again: a new format keeps a reader for this one.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from dumpstream import StoredCapture
from dumpstream.cli import main

_ARCHIVE = Path(__file__).parents[1] / "data" / "captures-0.1.0.tar.xz"


def _answers() -> dict[str, dict[str, Any]]:
    with tarfile.open(_ARCHIVE) as archive:
        file = archive.extractfile("answers.json")
        assert file is not None
        answers: dict[str, dict[str, Any]] = json.load(file)
        return answers


_ANSWERS = _answers()
#: Sentences and pictures for people, which may be made better: `show` counts zeros apart in a histogram.
_PROSE = {"detail", "problem", "histogram"}
#: What 0.1.0 did not know, and cannot have been the case.
_NEWER = {"capture", "host", "not_stored", "unstored_files"}
_ADDRESS = "address"  #: of a tensor: a number in statistics, which 0.1.0 did not have, and text in `show`
_STEP = "step"  #: 0.1.0 had it only in the name of the file


@pytest.fixture(autouse=True)
def _unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpack the captures into a directory of the test's, which becomes the current one."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", _ANSWERS["printed"])
def test_a_command_prints_what_0_1_0_printed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(command.split())

    printed = json.loads(capsys.readouterr().out)
    assert _facts({"code": code, "printed": printed}) == _facts(_ANSWERS["printed"][command])


@pytest.mark.parametrize("command", _ANSWERS["written"])
def test_a_command_writes_what_0_1_0_wrote(command: str) -> None:
    code = main([*command.split(), "--out", "out"])

    files = [path for path in Path("out").rglob("*") if path.is_file()]
    written = {str(path.relative_to("out")): _sha256(path.read_bytes()) for path in files}
    assert {"code": code, "written": written} == _ANSWERS["written"][command]


def test_a_capture_in_a_store_has_the_files_that_0_1_0_stored(tmp_path: Path) -> None:
    capture = StoredCapture.open(LocalStore(tmp_path / "store"))

    files = {}
    for file in capture.files:
        pieces = [bytes(piece) for part in file.parts for piece in capture.read_part(part)]
        files[file.name] = {"verdict": str(file.verdict), "sha256": _sha256(b"".join(pieces))}
    assert files == _ANSWERS["store"]


def _facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _facts(item) for name, item in value.items() if not _is_news(name, item)}
    if isinstance(value, list):
        return [_facts(item) for item in value if not _is_newer_kind(item)]
    return value


def _is_news(name: str, value: Any) -> bool:
    if name == _ADDRESS:
        return not isinstance(value, str)
    return name in _PROSE or name == _STEP or (name in _NEWER and not value)


def _is_newer_kind(item: Any) -> bool:
    """Whether *item* is a problem that 0.1.0 knew, as the ending of a process, and did not count as one."""
    return isinstance(item, dict) and item.get("kind") == "died"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
