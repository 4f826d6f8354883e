"""Read every file of a capture again and compare it with the journal.

Decompresses everything, checks sizes, checksums and dump headers, and looks for files that are missing,
damaged or not in the journal. Files in an object store are looked up in its listing, and read only if that
does not match the journal; --deep reads all of them. Prints a line for each problem. Exits with 0 if
everything is whole and with 3 if not, which includes files that came incomplete, losses, and a capture that
was interrupted or is still running.

Examples:
  dumpstream verify run1
  dumpstream verify s3://bucket/run1             whether every file is there, in its size
  dumpstream verify s3://bucket/run1 --deep      whether every byte is as it was captured
  dumpstream verify run1 --json | jq '.problems[] | .kind' | sort | uniq -c
"""

from argparse import ArgumentParser, Namespace
from typing import Any

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument
from dumpstream.cli._display import ProgressLine, attributes, count_text, print_json, printable, size_text
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.reading.collection import Collection
from dumpstream.reading.verification import Verification, verify


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_rank_argument(parser)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also read files in an object store, instead of looking them up in its listing",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    collection = Collection.open(args.capture, args.rank)
    with ProgressLine() as line:
        result = verify(collection, deep=args.deep, progress=lambda so_far: line.show(_progress(so_far)))
    if args.json:
        print_json(_object(result))
    else:
        _print_problems(result)
    return 0 if result.whole else NOT_WHOLE


def _progress(result: Verification) -> str:
    text = f"verified {count_text(result.parts, 'part')}, {size_text(result.bytes)}"
    if result.found_parts:
        text += f", found {count_text(result.found_parts, 'part')} in object stores (--deep reads them)"
    return text


def _object(result: Verification) -> dict[str, Any]:
    numbers = ("files", "parts", "bytes", "found_parts", "skipped_parts")
    problems = {"problems": [problem._asdict() for problem in result.problems]}
    return attributes(result, "whole", "state", *numbers) | problems | {"leftovers": result.leftovers}


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
