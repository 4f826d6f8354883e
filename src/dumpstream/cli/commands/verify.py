"""Read every file of a capture again and compare it with the journal.

Decompresses everything, checks sizes, checksums and dump headers, and looks for files that are missing,
damaged or not in the journal. Files in an object store are looked up in its listing, and read only if that
does not match the journal; --deep reads all of them. Prints a line for each problem. Exits with 0 if
everything is whole and with 3 if not, which includes files that came incomplete, losses, and a capture that
was interrupted or is still running.

With --repair, first removes what a killed run left without a line of the journal: dump files and packs that
are `extra`, and temporary files. Nothing else is removed, and nothing while a capture is running.

Examples:
  dumpstream verify run1
  dumpstream verify s3://bucket/run1             whether every file is there, in its size
  dumpstream verify s3://bucket/run1 --deep      whether every byte is as it was captured
  dumpstream verify run1 --repair                remove what a killed run left, then verify
  dumpstream verify run1 --json | jq '.problems[] | .kind' | sort | uniq -c
"""

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

import anyio

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument
from dumpstream.cli._display import ProgressLine, attributes, count_text, print_json, printable, size_text
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.reading.collection import Collection
from dumpstream.reading.repair import repair
from dumpstream.reading.verification import Verification, verify

_FLAGS = {
    "--deep": "also read files in an object store, instead of looking them up in its listing",
    "--repair": "first remove the extra files and leftovers of killed runs, of all processes",
    "--outbox-lost": "with --repair: the local directory of the killed capture is gone, "
    "and cannot be uploaded",
    "--json": "print one JSON object",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_rank_argument(parser)
    for flag, meaning in _FLAGS.items():
        parser.add_argument(flag, action="store_true", help=meaning)


def run(args: Namespace) -> int:
    removed: list[str] = []
    if args.repair:
        note = removed.append if args.json else _print_removed
        anyio.run(partial(repair, args.capture, note, outbox_lost=args.outbox_lost))
    elif args.outbox_lost:
        raise WrongUsageError("--outbox-lost is for --repair; give both or none")
    collection = Collection.open(args.capture, args.rank)
    with ProgressLine() as line:
        result = verify(collection, deep=args.deep, progress=lambda so_far: line.show(_progress(so_far)))
    if args.json:
        print_json(_object(result) | ({"removed": removed} if args.repair else {}))
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


def _print_removed(path: str) -> None:
    print(f"{'removed':<11} {printable(path)}: no line of the journal names it")


def _print_problems(result: Verification) -> None:
    for kind, subject, detail in result.problems:
        print(f"{kind:<11} {printable(subject)}: {printable(detail)}")
    for path in result.leftovers:
        print(f"{'leftover':<11} {printable(path)}: left by an unfinished write; --repair removes it")
    summary = f"{count_text(result.files, 'file')}, {_progress(result)}"
    if result.skipped_parts:
        summary += f", {count_text(result.skipped_parts, 'part')} that cannot be read back not checked"
    if result.whole:
        print(f"{summary}: everything is whole")
    else:
        print(f"{summary}: {count_text(len(result.problems), 'problem')}, not everything is whole")
