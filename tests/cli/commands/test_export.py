"""`export`: a run for other programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conftest import CaptureBuilder, DumpBuilder

from dumpstream.cli import main
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.format.verdict import Verdict


def test_operator_without_a_time_is_said_to_be_left_out(
    builder: CaptureBuilder, dump: DumpBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = dump.output(np.ones(4, np.float32)).build()
    builder.add("Add.timed.1.2.3", data, Verdict.COMPLETE)
    builder.add("untimed", data, Verdict.COMPLETE)
    out = tmp_path / "run.pftrace"

    assert main(["export", str(builder.finish()), "--format", "perfetto", "--out", str(out)]) == NOT_WHOLE

    said = capsys.readouterr()
    assert "1 operator left out" in said.err
    assert "1 operator in" in said.out + said.err
