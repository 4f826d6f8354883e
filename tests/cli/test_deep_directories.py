"""Commands that read directories of dump files, whatever their depth is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.conftest import DumpBuilder

from dumpstream.cli import main
from dumpstream.system.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: More levels than Python has frames, in a path that is not too long for the system.
_LEVELS = 1500
_NAME = "MatMul.layer_1.1.0.1780000000000000"


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("deep")
    above = root / "deep"
    for part in [50 * "d/"] * (_LEVELS // 50):
        above /= part
        above.mkdir(parents=True)
    (above / _NAME).write_bytes(DumpBuilder("layer_1").output(np.ones(4, np.float32)).build())
    yield root / "deep"
    fd = os.open(root, os.O_RDONLY)
    remove_tree("deep", fd)  # pytest removes no tree of this depth
    os.close(fd)


@pytest.mark.parametrize(
    "command", ["stats", "overflow", "diagnose", "compare", "stats --shard 1/1", "compare --shard 1/1"]
)
def test_files_at_any_depth_are_read(
    deep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name, *flags = command.split()
    if flags:
        flags += ["--parts", str(tmp_path / "parts")]

    code = main([name, str(deep), *([str(deep)] if name == "compare" else []), *flags])

    assert code == 0, capsys.readouterr().err
