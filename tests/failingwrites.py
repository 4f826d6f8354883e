"""Failing writes: a library that is loaded into a process, and lets one of its writes fail half-way."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed;

static int is_target(int fd) {
  char link[64], path[PATH_MAX];
  const char *wanted = getenv("FAILING_WRITES");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (wanted == NULL || length < 0) return 0;
  path[length] = 0;
  return strstr(path, wanted) != NULL;
}

ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "write");
  size_t least = (size_t)atol(getenv("FAILING_WRITES_LEAST") ? getenv("FAILING_WRITES_LEAST") : "2");
  if (!failed && size >= least && is_target(fd)) {
    failed = 1;
    real(fd, data, size / 2);
    errno = EIO;
    return -1;
  }
  return real(fd, data, size);
}
"""


def failing_writes(directory: Path, target: str, *, least: int = 2) -> dict[str, str]:
    """Return the environment of a process whose first write of *least* bytes to *target* fails.

    *target* is part of the path. Half of the bytes are written all the same, as a network file system does.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = directory / "failing.c", directory / "failing.so"
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    loaded = {"LD_PRELOAD": str(library), "FAILING_WRITES": target, "FAILING_WRITES_LEAST": str(least)}
    return os.environ | loaded
