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
_OPTIONS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", f"-I{_INCLUDE}")
_LIBRARY = ("-shared", "-fPIC", "-pthread")


@cache
def load_compiled(source: str) -> ctypes.CDLL:
    """Compile the C file *source* of this directory, and load it."""
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        path = Path(directory, source).with_suffix(".so")
        _compile(path, *_LIBRARY, _HERE / source)
        return ctypes.CDLL(str(path))


def compile_program(source: str, library: str, directory: Path) -> Path:
    """Compile the program *source* and the ACL *library* that it is linked with, both into *directory*."""
    program, shared = directory / Path(source).stem, directory / "libascendcl.so"
    _compile(shared, *_LIBRARY, _HERE / library)
    _compile(program, _HERE / source, shared, f"-Wl,-rpath,{directory}")
    return program


def _compile(path: Path, *words: object) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, *_OPTIONS, "-o", path, *map(str, words)], check=True)
