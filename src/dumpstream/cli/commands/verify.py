"""Read every file of a capture again and compare it with the journal.

Decompresses everything; checks sizes, checksums and dump headers; looks for files that are missing, damaged
or not in the journal. Of what is in an object store, asks the store what is there, and reads it only if that
does not match the journal; with --deep reads it, too. Prints a line for each problem. Exits with 0 if
everything is whole and with 3 if not, which includes files that came incomplete, losses, and a capture that
was interrupted or is still running.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument
from dumpstream.cli._display import ProgressLine, count_text, printable, size_text
from dumpstream.cli._exit import NOT_WHOLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dumpstream.reading.verification import Verification

_EPILOG = """\
examples:
  dumpstream verify run1
  dumpstream verify s3://bucket/run1             whether everything is there, with its size
  dumpstream verify s3://bucket/run1 --deep      whether every byte is what was captured
  dumpstream verify run1 --json | jq '.problems[] | .kind' | sort | uniq -c
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    add_capture_argument(parser)
    add_rank_argument(parser)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read back what is in an object store, too, instead of asking the store whether it is there",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    """Print what is wrong."""
    from dumpstream.reading.collection import Collection  # noqa: PLC0415 - --help need not wait for it
    from dumpstream.reading.verification import verify_collection  # noqa: PLC0415 - likewise

    collection = Collection.open(args.capture, args.rank)
    line = ProgressLine()
    try:
        result = verify_collection(
            collection, deep=args.deep, progress=lambda so_far: line.show(_progress(so_far))
        )
    finally:
        line.clear()
    if args.json:
        print(json.dumps(_object(result), indent=2))
    else:
        _print_problems(result)
    return 0 if result.whole else NOT_WHOLE


def _progress(result: Verification) -> str:
    text = f"verified {count_text(result.parts, 'part')}, {size_text(result.bytes)}"
    if result.found_parts:
        text += f", found {count_text(result.found_parts, 'part')} in object stores (--deep reads them)"
    return text


def _object(result: Verification) -> dict[str, Any]:
    return {
        "whole": result.whole,
        "state": result.state,
        "files": result.files,
        "parts": result.parts,
        "bytes": result.bytes,
        "found_parts": result.found_parts,
        "skipped_parts": result.skipped_parts,
        "problems": [problem._asdict() for problem in result.problems],
        "leftovers": result.leftovers,
    }


def _print_problems(result: Verification) -> None:
    for kind, subject, detail in result.problems:
        print(f"{kind:<11} {printable(subject)}: {printable(detail)}")
    for path in result.leftovers:
        print(f"{'leftover':<11} {printable(path)}: left by an unfinished write; it may be deleted")
    summary = f"{count_text(result.files, 'file')}, {_progress(result)}"
    if result.skipped_parts:
        summary += f", {count_text(result.skipped_parts, 'part')} that cannot be read back not checked"
    if result.whole:
        print(f"{summary}: everything is whole")
    else:
        print(f"{summary}: {count_text(len(result.problems), 'problem')}, not everything is whole")
