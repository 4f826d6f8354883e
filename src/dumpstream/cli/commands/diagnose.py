"""Find the operator that made the first NaN of a run.

Takes a capture (of one process or of many, also while it grows), a directory that CANN itself wrote, or a
table of statistics. Says which operator of which rank made the first bad values, on which evidence, how they
spread to other ranks, what was not captured, and what to dump next. If the dump does not prove that an
operator made them, the answer is that it is not known, with the reason. Needs no more than statistics. Exits
with 3 if something bad was found.

Examples:
  dumpstream diagnose run1
  dumpstream diagnose run1 --all                                  every independent origin
  dumpstream diagnose run1 --look-for nan,saturation
  dumpstream diagnose run1 --json | jq -r '.origins[0].op_name'
  dumpstream diagnose run1 --json | jq .next_config > acl.json    what to dump next
  dumpstream diagnose run1 --golden run0                          where it first differs from another run
  dumpstream diagnose run1 --repeat run2                          is it deterministic?
  dumpstream diagnose run1 --follow                               while the job runs
  dumpstream diagnose run1 --graph flow.parquet                   the data flow, for other programs
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dumpstream.cli._arguments import add_members_arguments, add_run_argument, local_path, location
from dumpstream.cli._display import count_text, in_words, print_json, printable, say
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli.screen.amounts import bytes_to_measure
from dumpstream.cli.screen.progress import Progress
from dumpstream.cli.screen.table import Table
from dumpstream.cli.screen.tensors import tensor_columns
from dumpstream.diagnosis.answer import answer, examine
from dumpstream.diagnosis.badness import DEFAULT, Badness
from dumpstream.diagnosis.dataflow.graphfile import write_graph
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.following import follow
from dumpstream.diagnosis.origins import find_origins
from dumpstream.diagnosis.repeat import Repetition, compare_runs
from dumpstream.diagnosis.report import Diagnosis, OriginReport, TensorReport
from dumpstream.diagnosis.subject import Subject, read_subject, refuse_nothing
from dumpstream.reading.outputs import open_output
from dumpstream.system.location import Prefix

_TENSORS = ("io", "index", "dtype", "shape", "count", "nan", "pos_inf", "neg_inf", "finite_min", "finite_max")
_BEFORE = ("iteration", "task", "op_name", "index", "nan", "pos_inf", "neg_inf", "finite_min", "finite_max")
_HISTORY = ("iteration", "io", "index", "nan", "finite_min", "finite_max", "mean", "std")
_MOST_MISSING = 10


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_run_argument(parser)
    add_members_arguments(parser)
    add(
        "--look-for",
        metavar="KIND,...",
        default=",".join(DEFAULT),
        help=f"what is bad: {', '.join(it for it in Badness if it is not Badness.DIVERGENCE)} "
        "(default: %(default)s)",
    )
    add("--all", action="store_true", help="every independent origin, not only the first")
    add(
        "--graph",
        type=local_path,
        metavar="FILE",
        help="write the data flow, as Parquet or, if it ends in .json, JSON",
    )
    golden = "a run that it should agree with: where it does not is bad, too"
    add("--golden", type=location, metavar="RUN", help=golden)
    repeat = "say whether this second run, with the same seed, went wrong in the same way"
    add("--repeat", type=location, metavar="RUN", help=repeat)
    follow_help = "while the run is captured, say what is found so far whenever it changes"
    add("--follow", action="store_true", help=follow_help)
    add("--force", action="store_true", help="replace the file of --graph")
    add("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    look_for = _kinds(args.look_for)
    if Badness.DIVERGENCE in look_for and args.golden is None:
        raise WrongUsageError("--look-for divergence needs --golden RUN, which the run should agree with")
    if args.follow:
        follow(args.path, args.rank, args.host, look_for, say)
    subject = _read(args.path, args.rank, args.host)
    evidence = examine(subject, look_for, args.golden)
    if args.graph is not None:
        _write_graph(args.graph, subject, evidence, replace=args.force)
    origins = find_origins(evidence)
    diagnosis = answer(subject, evidence, origins, every=args.all)
    repetition = None
    if args.repeat is not None:
        again = examine(_read(args.repeat, args.rank, args.host), look_for)
        repetition = compare_runs(evidence, again, next(iter(origins.found), None))
    if args.json:
        print_json(diagnosis.as_json() | ({"repeat": repetition._asdict()} if repetition else {}))
    else:
        _print(diagnosis, repetition)
    return NOT_WHOLE if diagnosis.found else 0


def _kinds(text: str) -> list[Badness]:
    kinds = []
    for word in text.split(","):
        try:
            kinds.append(Badness(word.strip().lower()))
        except ValueError:
            known = ", ".join(Badness)
            raise WrongUsageError(f"--look-for {word.strip()!r} is not one of {known}") from None
    return kinds


def _read(path: Path | Prefix, ranks: Sequence[int], hosts: Sequence[str]) -> Subject:
    with Progress("measuring", count_all=lambda: (0, bytes_to_measure([path], ranks, hosts))) as progress:
        subject = read_subject(path, ranks, hosts, progress=progress.show)
    refuse_nothing(subject)
    return subject


def _write_graph(path: Path, subject: Subject, evidence: Evidence, *, replace: bool) -> None:
    with open_output(path, replace=replace, option="--graph") as file:
        count = write_graph(
            file, subject.trace, evidence.executions, evidence.flow, parquet=path.suffix != ".json"
        )
    say(f"{path} has {count_text(count, 'edge')} of the data flow")


def _print(diagnosis: Diagnosis, repetition: Repetition | None) -> None:
    print(in_words(printable(diagnosis.sentence), sys.stdout))
    if repetition is not None:
        print(in_words(printable(repetition.sentence), sys.stdout))
    for origin in diagnosis.origins[1:]:
        print(in_words(printable(f"Also: {_origin_text(origin)}"), sys.stdout))
    evidence = diagnosis.evidence
    _print_tensors("Its tensors", evidence.tensors, _TENSORS)
    _print_tensors("What ran before it", evidence.before, _BEFORE)
    _print_tensors("The same operator in earlier steps", evidence.history, _HISTORY)
    _print_lines("How it spread", _spread_lines(diagnosis.origins[:1]))
    _print_lines("What was not captured, and might change the answer", _missing_lines(diagnosis))
    if diagnosis.next_config is not None:
        print("\nWhat to dump next (acl.json)")
        print(json.dumps(diagnosis.next_config, indent=2))


def _origin_text(origin: OriginReport) -> str:
    where = [] if origin.host is None else [f"host {origin.host}"]
    where += [] if origin.rank is None else [f"rank {origin.rank}"]
    where += [] if origin.step is None else [f"step {origin.step}"]
    known = origin.op_name is not None or origin.op_type is not None
    what = [f"{origin.op_name} ({origin.op_type})", f"{origin.io} {origin.index}"]
    where += what if known else ["an operator that is not in the dump"]
    return f"{origin.kind}, {origin.blame}: {', '.join(where)}: {origin.reason}"


def _print_tensors(title: str, tensors: Sequence[TensorReport], names: Sequence[str]) -> None:
    if tensors:
        print(f"\n{title}")
        table = Table(tensor_columns(names), indent=2)
        table.add({name: [_shown(getattr(it, name)) for it in tensors] for name in names})
        sys.stdout.writelines(table.lines())


def _shown(value: Any) -> Any:
    """Return *value* with NaN, which stands for what is not known, as None."""
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124 - only NaN differs


def _spread_lines(origins: Iterable[OriginReport]) -> list[str]:
    lines = []
    for origin in origins:
        if len(origin.path) > 1:
            lines.append(" -> ".join(origin.path))
        lines += [
            f"{f'host {host}, ' if host else ''}rank {'?' if rank is None else rank}: "
            f"{count_text(hops, 'exchange')} away"
            for host, rank, hops in zip(origin.victim_hosts, origin.victims, origin.hops, strict=True)
        ]
    return lines


def _missing_lines(diagnosis: Diagnosis) -> list[str]:
    lines = [*(line for it in diagnosis.origins[:1] for line in it.missing), *diagnosis.missing]
    if diagnosis.later:
        lines.append(f"which operators wrote {count_text(diagnosis.later, 'later bad tensor')} is not known")
    if len(lines) > _MOST_MISSING:
        lines[_MOST_MISSING:] = [f"and {len(lines) - _MOST_MISSING} more; --json has all"]
    return lines


def _print_lines(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(f"\n{title}")
        for line in lines:
            print(in_words(f"  {printable(line)}", sys.stdout, indent="  "))
