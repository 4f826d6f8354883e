"""Simulated: dump files of one tensor each, and directories to measure in."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

#: About as many as the header of a file with one tensor has.
HEADER_BYTES = 128
DTYPES = "float32+float16+bfloat16+int32"


def simulated_files(count: int, tensor_bytes: int, dtypes: str = DTYPES) -> list[bytes]:
    """Return *count* dump files with one tensor each."""
    workload = Workload(models=1, ops=count, inputs=0, tensor_bytes=str(tensor_bytes), dtypes=dtypes)
    return [file.data for file in workload.expected_files("/dump")]


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty directory on a file system that has nothing left to write."""
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        os.sync()
        yield Path(directory)
