"""List the files of a capture.

Shows for each name its verdict, its original and its stored size, the chunks it came in and the parts it is
stored in. Works while the capture runs, too.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpstream.cli._display import count_text, printable, size_text

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dumpstream.stored import StoredCapture, StoredFile

_EPILOG = """\
examples:
  dumpstream ls run1
  dumpstream ls run1 --json | jq -r '.files[] | select(.verdict == "gap") | .name'
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    parser.add_argument("directory", type=Path, metavar="DIR", help="the capture")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    """Print the list."""
    from dumpstream.stored import StoredCapture  # noqa: PLC0415 - --help need not wait for it

    capture = StoredCapture.open(args.directory)
    if args.json:
        print(json.dumps(_object(capture), indent=2))
    else:
        _print_table(capture)
    return 0


def _object(capture: StoredCapture) -> dict[str, Any]:
    return {
        "state": capture.state,
        "runs": [{"run": run, "outcome": outcome} for run, outcome in capture.outcomes.items()],
        "files": [_row(file) for file in capture.files],
        "losses": [loss._asdict() for loss in capture.losses],
        "unreadable_lines": len(capture.unreadable_lines),
    }


def _row(file: StoredFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "path": file.path,
        "parts": len(file.parts),
        "bytes": file.bytes,
        "stored_bytes": file.stored_bytes,
        "chunks": file.chunks,
        "verdict": file.verdict,
        "cause": file.cause,
        "missing": file.missing,
    }


def _print_table(capture: StoredCapture) -> None:
    if capture.files:
        print(f"{'verdict':<12} {'bytes':>9} {'stored':>9} {'chunks':>7} {'parts':>5}  name")
    for file in capture.files:
        print(
            f"{file.verdict:<12} {size_text(file.bytes):>9} {size_text(file.stored_bytes):>9} "
            f"{file.chunks:>7} {len(file.parts):>5}  {printable(file.name)}"
        )
    print(_summary(capture))


def _summary(capture: StoredCapture) -> str:
    original = sum(file.bytes for file in capture.files)
    stored = sum(file.stored_bytes for file in capture.files)
    verdicts = Counter(file.verdict for file in capture.files)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    summary = f"{count_text(len(capture.files), 'file')}{f' ({counts})' if counts else ''}, "
    summary += f"{size_text(original)} stored in {size_text(stored)}; the capture is {capture.state}"
    for loss in capture.losses:
        summary += f"; lost {count_text(loss.chunks, 'chunk')}, {size_text(loss.bytes)}"
        summary += f" ({printable(loss.cause)})"
    if capture.unreadable_lines:
        summary += f"; {count_text(len(capture.unreadable_lines), 'journal line')} unreadable"
    return summary
