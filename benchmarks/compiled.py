"""Compiled: the C parts of the benchmarks, built when they are needed."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_INCLUDE = _HERE.parent / "src" / "dumpstream" / "native" / "include"
_OPTIONS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread")


@cache
def load_compiled(source: str) -> ctypes.CDLL:
    """Compile the C file *source* of this directory, and load it."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        path = Path(directory, source).with_suffix(".so")
        subprocess.run([*compiler, *_OPTIONS, f"-I{_INCLUDE}", "-o", path, _HERE / source], check=True)
        return ctypes.CDLL(str(path))
