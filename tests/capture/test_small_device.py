"""What small devices dump: judged by its own header, and measured by the statistics sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from anyio.to_thread import run_sync
from tests.format.smalldevice import small_dump, small_tensor

from dumpstream import Verdict
from dumpstream.cli import main

if TYPE_CHECKING:
    from tests.capture.conftest import Rig

pytestmark = pytest.mark.anyio

NAME = "/dump/20260530164725/0/Add.{}.4.2.1780159660546556"
DATA = small_dump(
    [small_tensor(np.arange(1000, dtype=np.float16))], [small_tensor(np.array([1, np.nan], dtype=np.float32))]
)


async def test_a_capture_judges_and_measures_it(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    async with rig.pushed(sinks=["zstd:", "stats:"]):
        rig.push(NAME.format("once"), DATA, last=True)
        for start in range(0, len(DATA), 100):
            rig.push(NAME.format("pieces"), DATA[start : start + 100], last=start + 100 >= len(DATA))
        rig.push(NAME.format("short"), DATA[:-1], last=True)
        rig.push(NAME.format("long"), DATA + b"x", last=True)
        rig.push(NAME.format("open"), DATA)

    verdicts = {name.split(".")[1]: file.verdict for name, file in (await run_sync(rig.read)).items()}
    assert verdicts == {
        "once": Verdict.COMPLETE,
        "pieces": Verdict.COMPLETE,
        "short": Verdict.SHORT,
        "long": Verdict.LONG,
        "open": Verdict.COMPLETE,
    }
    select = ["--where", "nan > 0", "--select", "op_name,io,dtype,count"]
    assert await run_sync(main, ["stats", str(rig.path), *select]) == 3
    rows = sorted(line.split() for line in capsys.readouterr().out.splitlines()[1:-1])
    assert rows == [[name, "output", "float32", "2"] for name in ("long", "once", "open", "pieces")]
