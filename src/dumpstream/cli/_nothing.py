"""What is said if a capture got nothing."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dumpstream.cli._display import print_text, say
from dumpstream.stages.report import Report

_NO_PROCESS = (
    "it runs nothing on an NPU, or not with CANN",
    "its environment was cleared, as by env -i and some launchers: it needs DUMPSTREAM_SOCKET and LD_PRELOAD",
    "it was started without the agent: LD_PRELOAD is stripped by set-uid programs, sudo and some containers",
    "it is linked statically, or its launcher starts it on another machine",
)


def tell_lack(args: Namespace, report: Report) -> bool:
    """Say if nothing came although --require-dump asks for it, and return whether that is so."""
    lacking = bool(args.require_dump) and not report.chunks
    if lacking:
        say("nothing was captured, and --require-dump asks for a dump")
    return lacking


def tell_no_process() -> None:
    """Say that no process joined the collector, and why that may be."""
    say("no process used ACL, so nothing was captured; if one should have:")
    for reason in _NO_PROCESS:
        print_text(f"  - {reason}", indent=4, file=sys.stderr)


def tell_written(config: Path | None, since: float) -> None:
    """Say if files were dumped to the ``dump_path`` of *config* after the time *since*."""
    for path in () if config is None else _dump_paths(config):
        with suppress(OSError), os.scandir(path) as entries:
            if any(entry.stat(follow_symlinks=False).st_mtime >= since for entry in entries):
                say(f"something was written to {path} meanwhile: what dumped it ran without the agent")


def _dump_paths(config: Path) -> Iterator[Path]:
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        path = json.loads(config.read_bytes())["dump"]["dump_path"]
        yield Path(path)
