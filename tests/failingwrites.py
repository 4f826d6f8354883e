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
#include <sys/uio.h>
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

static int is_to_fail(int fd, size_t size) {
  size_t least = (size_t)atol(getenv("FAILING_WRITES_LEAST") ? getenv("FAILING_WRITES_LEAST") : "2");
  return !failed && size >= least && is_target(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "write");
  if (is_to_fail(fd, size)) {
    failed = 1;
    real(fd, data, size / 2);
    errno = EIO;
    return -1;
  }
  return real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "writev");
  size_t size = 0;
  for (int i = 0; i < count; i++) size += pieces[i].iov_len;
  if (is_to_fail(fd, size)) {
    failed = 1;
    size_t left = size / 2;
    for (int i = 0; i < count && left > 0; i++) {
      struct iovec piece = {pieces[i].iov_base, pieces[i].iov_len < left ? pieces[i].iov_len : left};
      real(fd, &piece, 1);
      left -= piece.iov_len;
    }
    errno = EIO;
    return -1;
  }
  return real(fd, pieces, count);
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
