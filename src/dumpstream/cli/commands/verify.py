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
  dumpstream verify s3://bucket/job --deep --engine dask=tcp://head:8786    on the workers of a cluster
  dumpstream verify run1 --json | jq '.problems[] | .kind' | sort | uniq -c
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from dumpstream.cli._arguments import add_capture_argument, add_members_arguments
from dumpstream.cli._display import (
    attributes,
    count_text,
    not_stored_text,
    print_json,
    print_text,
    printable,
    size_text,
    summarise,
)
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli.engine.arguments import add_engine_arguments, is_planned, refuse_relative
from dumpstream.cli.engine.running import run_planned
from dumpstream.cli.screen.amounts import amount_of_collection
from dumpstream.cli.screen.colour import Style, styled, verdict
from dumpstream.cli.screen.progress import Progress
from dumpstream.engine.computing import Failure
from dumpstream.engine.parts import Parts
from dumpstream.engine.plan import Plan
from dumpstream.engine.verifying import verification_of, verifying_tasks
from dumpstream.reading.collection import Collection, state_of
from dumpstream.reading.problem import Kind, Problem
from dumpstream.reading.repair import repair
from dumpstream.reading.stored import State
from dumpstream.reading.verification import Verification, strangers_of, verify

_KIND = 11  #: the columns of the longest kind of problem

_FLAGS = {
    "--deep": "also read files in an object store, instead of looking them up in its listing",
    "--repair": "first remove the extra files and leftovers of killed runs, of all processes",
    "--outbox-lost": "with --repair: the local directory of the killed capture is gone, "
    "and cannot be uploaded",
    "--json": "print one JSON object",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_members_arguments(parser)
    for flag, meaning in _FLAGS.items():
        parser.add_argument(flag, action="store_true", help=meaning)
    add_engine_arguments(parser)


def run(args: Namespace) -> int:
    if is_planned(args, without=["repair", "outbox_lost"]):
        collection = Collection.open(args.capture, args.rank, args.host)
        refuse_relative(args.engine, [args.capture])
        plan = _plan(args, collection)
        return run_planned(args, plan, partial(merge, args, plan.request))
    removed: list[str] = []
    if args.repair:
        note = removed.append if args.json else _print_removed
        anyio.run(partial(repair, args.capture, note, outbox_lost=args.outbox_lost, hosts=args.host))
    elif args.outbox_lost:
        raise WrongUsageError("--outbox-lost is for --repair; give both or none")
    collection = Collection.open(args.capture, args.rank, args.host)
    with Progress("verifying", count_all=partial(amount_of_collection, collection)) as progress:
        result = verify(
            collection,
            deep=args.deep,
            # What is only looked up in a listing takes the same time in any size.
            progress=lambda it: progress.show(it.rows, 0 if it.found_parts else it.row_bytes),
        )
    return _tell(result, as_json=args.json, removed=removed if args.repair else None)


def _plan(args: Namespace, collection: Collection) -> Plan:
    request = {
        "command": "verify",
        "capture": str(args.capture),
        "rank": args.rank,
        "host": args.host,
        "deep": args.deep,
        "json": args.json,
        "state": str(collection.state(())),
        "strangers": strangers_of(collection),
    }
    return Plan(request, verifying_tasks(collection, deep=args.deep))


def merge(args: Namespace, request: Mapping[str, Any], parts: Parts, failures: Sequence[Failure]) -> int:
    """Print what `run` prints, from *parts*."""
    if getattr(args, "out", None) is not None:
        raise WrongUsageError("verify has no --out; redirect what it prints")
    result, states = verification_of(parts)
    result.state = state_of([State(request["state"]), *states])
    result.problems += [Problem(Kind(kind), *about) for kind, *about in request["strangers"]]
    result.problems += [Problem(Kind.UNREACHABLE, it.label, it.problem) for it in failures]
    return _tell(result, as_json=bool(request["json"]))


def _tell(result: Verification, *, as_json: bool, removed: Sequence[str] | None = None) -> int:
    if as_json:
        print_json(_object(result) | ({} if removed is None else {"removed": removed}))
    else:
        _print_problems(result)
    return 0 if result.whole else NOT_WHOLE


def _verified(result: Verification) -> str:
    text = f"verified {count_text(result.parts, 'part')}, {size_text(result.bytes)}"
    if result.found_parts:
        text += f", found {count_text(result.found_parts, 'part')} in object stores (--deep reads them)"
    return text


def _unread(result: Verification) -> str:
    """Return what was not verified, because it cannot be read; empty if there is nothing."""
    unread = []
    if result.unread_parts:
        unread.append(f"{count_text(result.unread_parts, 'part')} cannot be read back")
    if result.unstored_files:
        unread.append(f"no bytes of {count_text(result.unstored_files, 'file')} are stored")
    return " and ".join(unread)


def _object(result: Verification) -> dict[str, Any]:
    numbers = ("files", "parts", "bytes", "found_parts", "skipped_parts", "not_stored", "unstored_files")
    problems = {"problems": [problem._asdict() for problem in result.problems]}
    return attributes(result, "whole", "state", *numbers) | problems | {"leftovers": result.leftovers}


def _print_line(kind: str, text: str) -> None:
    print_text(f"{verdict(kind, _KIND)} {printable(text)}", indent=_KIND + 1)


def _print_removed(path: str) -> None:
    _print_line("removed", f"{path}: no line of the journal names it")


def _print_problems(result: Verification) -> None:
    for kind, subject, detail in result.problems:
        _print_line(kind, f"{subject}: {detail}")
    for path in result.leftovers:
        _print_line("leftover", f"{path}: left by an unfinished write; --repair removes it")
    summary = f"{count_text(result.files, 'file')}, {_verified(result)}"
    if result.not_stored:
        summary += f", {not_stored_text(result.not_stored)}"
    unread = _unread(result)
    if result.whole and not result.files:
        judgement = "nothing was captured"
    elif result.whole and unread:
        judgement = f"no problem was found, but {unread}"
    elif result.whole:
        judgement = styled("everything is whole", Style.GOOD)
    else:
        problems = count_text(len(result.problems), "problem")
        judgement = styled(f"{problems}, not everything is whole", Style.BAD)
        judgement += f"; {unread}" if unread else ""
    summarise(f"{summary}: {judgement}", good=result.whole)
