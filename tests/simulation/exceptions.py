"""Exception dumps: the workload, the scenes, and what is looked at in the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dumpstream.format.opname import parse_name
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from pathlib import Path

WORKLOAD = Workload(models=2, ops=4, steps=2, fails="2@1", tensor_bytes="64-1024", device_id=3)
BRIEF, NORM, DETAIL = "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"
PATHS = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH")
VARIABLES = (*PATHS, "ASCEND_DUMP_SCENE")


def dumps_below(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def scene_of(path: Path) -> str:
    name = parse_name(str(path))
    if name.op_name is not None:
        return NORM
    return DETAIL if name.core_type else BRIEF
