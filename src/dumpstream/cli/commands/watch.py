"""Find the operators that trample on the outputs of watched ones.

Takes a run with dump_scene watcher: a capture, or a directory that CANN itself wrote. Compares the dumps of
each watched operator and iteration in the order of time. Says between which two dumps bytes changed, how many
elements and where, and which operators ran in between. Exits with 3 if something was trampled on, or if not
every dump could be compared.

Examples:
  dumpstream watch run1
  dumpstream watch run1 --ops graph.json                        with the names of all operators in between
  dumpstream watch run1 --json | jq '.watched[] | select(.state == "trampled")'
"""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.difference import Difference
from dumpstream.analysis.modes import need_mode
from dumpstream.analysis.watch import Graph, Trampling, WatchDump, Watched, WatchResult, find_watched, watch
from dumpstream.cli._arguments import add_members_arguments, add_run_argument, local_path
from dumpstream.cli._display import (
    attributes,
    count_text,
    number_text,
    operator_text,
    print_json,
    print_text,
    printable,
    say,
)
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli._operators import operators_in
from dumpstream.cli.screen.colour import verdict
from dumpstream.cli.screen.live import above
from dumpstream.cli.screen.progress import Progress
from dumpstream.config import Mode
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.problem import Problem
from dumpstream.statistics.table import json_value


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument(
        "--ops", type=local_path, metavar="FILE", help="the operators in the order of the graph, a JSON array"
    )
    add_members_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    graph = None if args.ops is None else Graph(operators_in(args.ops))
    lacking: list[Problem] = []
    inputs = list(find_inputs([args.path], args.rank, hosts=args.host, lacking=lacking.append))
    need_mode(args.path, inputs, Mode.WATCH)
    watched = find_watched(inputs)
    if not any(len(it.dumps) > 1 or it.early for it in watched):
        raise DumpstreamError(
            f"{args.path} has no operator that was dumped after another one; capture with dump_scene watcher "
            "and operators of the graph in layer, or name another directory"
        )
    results = _with_progress(watch(watched, graph), len(watched))
    if args.json:
        found = [_as_json(result) for result in results]
        print_json({"watched": found})
        counts = Counter(str(it["state"]) for it in found)
    else:
        counts = Counter(map(_print_result, results))
        print(_summary(watched, counts))
    for problem in lacking:
        say(problem.text)
    return NOT_WHOLE if counts["trampled"] or counts["incomplete"] or lacking else 0


def _with_progress(results: Iterable[WatchResult], total: int) -> Iterator[WatchResult]:
    size = 0
    with Progress("comparing", "execution") as progress:
        progress.expect(total)
        for number, result in enumerate(results, 1):
            size += sum(dump.input.bytes for dump in result.watched.dumps)
            with above(sys.stdout):
                yield result
            progress.show(number, size)


def _state(result: WatchResult) -> str:
    if result.tramplings:
        return "trampled"
    if result.problems:
        return "incomplete"
    return "clean" if result.clean else "single"


def _summary(watched: Sequence[Watched], counts: Counter[str]) -> str:
    operators = len(
        {(it.host, it.rank, it.name.device, it.name.model, it.name.model_id, it.op_name) for it in watched}
    )
    dumps = sum(len(it.dumps) + it.early for it in watched)
    text = f"{count_text(operators, 'operator')} watched in {count_text(len(watched), 'execution')}, "
    text += f"{count_text(dumps, 'dump')}: {counts['trampled']} trampled on, {counts['clean']} clean"
    if counts["incomplete"]:
        text += f", {counts['incomplete']} incomplete"
    if counts["single"]:
        text += f", {counts['single']} dumped only once"
    return text


def _origin(watched: Watched) -> dict[str, Any]:
    """Return what tells operators of the same name apart."""
    names = ("model", "model_id", "iteration", "device")
    return attributes(watched, "host", "rank") | attributes(watched.name, *names)


def _print_result(result: WatchResult) -> str:
    """Print *result* and return its state."""
    watched, state = result.watched, _state(result)
    title = operator_text(watched.op_name, watched.name.op_type, _origin(watched))
    text = count_text(len(watched.dumps), "dump")
    if watched.early:
        text += f", {watched.early} before it ran" if watched.dumps else f"{watched.early} without its own"
    print_text(f"{verdict(state, 10)} {printable(title)}: {text}", indent=11)
    for trampling in result.tramplings:
        _print_trampling(trampling)
    for problem in result.problems:
        say(problem)
    return state


def _print_trampling(trampling: Trampling) -> None:
    print_text(f"  between {_dump_text(trampling.before)}", indent=10)
    print_text(f"      and {_dump_text(trampling.after)}", indent=10)
    for difference in trampling.differences:
        _print_difference(difference)
    names = printable(", ".join(trampling.suspects))
    if trampling.by_graph:
        print_text(f"    by {'one of ' if len(trampling.suspects) > 1 else ''}{names}", indent=7)
    else:
        print_text(f"    by {names}, or an operator in between that --ops would name", indent=7)


def _dump_text(dump: WatchDump) -> str:
    return printable(f"the dump after {dump.after}, at {dump.timestamp}")


def _print_difference(difference: Difference) -> None:
    tensor = difference.tensor
    title = f"{tensor.label}: {tensor.dtype.short} {list(tensor.shape)}"
    if difference.changed:
        where = f"{list(difference.first or ())} to {list(difference.last or ())}"
        title += f", {difference.changed} of {count_text(difference.elements, 'element')} changed, {where}"
    if difference.padding:
        title += f", {count_text(difference.padding, 'byte')} behind the last element changed"
    print_text(f"    {title}", indent=6)
    for value in difference.values:
        print(f"      {list(value.position)}: {number_text(value.before)} -> {number_text(value.after)}")


def _as_json(result: WatchResult) -> dict[str, Any]:
    watched = result.watched
    return {
        "op_name": watched.op_name,
        "op_type": watched.name.op_type,
        **_origin(watched),
        "state": _state(result),
        "dumps": [_dump_json(dump) for dump in watched.dumps],
        "early": watched.early,
        "compared": result.compared,
        "tramplings": [_trampling_json(trampling) for trampling in result.tramplings],
        "problems": result.problems,
    }


def _dump_json(dump: WatchDump) -> dict[str, Any]:
    return {"file": dump.input.label, "after": dump.after, "timestamp": dump.timestamp}


def _trampling_json(trampling: Trampling) -> dict[str, Any]:
    return {
        "before": _dump_json(trampling.before),
        "after": _dump_json(trampling.after),
        **attributes(trampling, "suspects", "by_graph"),
        "tensors": [_difference_json(difference) for difference in trampling.differences],
    }


def _difference_json(difference: Difference) -> dict[str, Any]:
    tensor = difference.tensor
    return {
        **attributes(tensor, "io", "index"),
        "dtype": tensor.dtype.short,
        "shape": tensor.shape,
        **attributes(difference, "elements", "changed", "first", "last", "padding"),
        "values": [
            {"place": value.position, "before": json_value(value.before), "after": json_value(value.after)}
            for value in difference.values
        ],
    }
