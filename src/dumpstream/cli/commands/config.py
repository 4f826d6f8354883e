"""Check, explain and write dump configurations (acl.json).

`check` finds everything that CANN or its documents object to, `explain` says in words what will be dumped,
where it goes and what it costs, `new` writes a configuration, and `schema` prints a JSON Schema for editors.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpstream._errors import DumpstreamError
from dumpstream.cli._display import count_text, printable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from dumpstream.config import DumpSettings, Operator, Problem

_EPILOG = """\
examples:
  dumpstream config check acl.json
  dumpstream config check acl.json --json | jq -r '.problems[] | .path'
  dumpstream config explain acl.json --ops graph.json
  dumpstream config new --mode model --dump-path /data/npu --level op --layer conv1 --out acl.json
  dumpstream config schema > acl.schema.json

exit codes: 0 the configuration is accepted, warnings or not; 1 it is refused; 2 wrong usage
"""

_USAGE = 2
_MODES = ("model", "op", "exception", "overflow", "watch")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="find everything that is wrong with a configuration")
    check.add_argument("file", type=Path, metavar="FILE", help="the configuration")
    check.add_argument(
        "--strict", action="store_true", help="refuse what only documents or some releases refuse"
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    explain = actions.add_parser("explain", help="say what will be dumped, where, and what it costs")
    explain.add_argument("file", type=Path, metavar="FILE", help="the configuration")
    explain.add_argument(
        "--ops", type=Path, metavar="FILE", help="say for each of these operators if it is dumped"
    )
    _add_new(
        actions.add_parser("new", help="write a configuration", formatter_class=RawDescriptionHelpFormatter)
    )
    actions.add_parser("schema", help="print the JSON Schema of configurations")


def _add_new(new: ArgumentParser) -> None:
    """Declare the flags that `_settings` reads."""
    new.add_argument("--mode", choices=_MODES, required=True, help="what it is for")
    new.add_argument("--out", type=Path, metavar="FILE", required=True, help="the new file")
    new.add_argument("--force", action="store_true", help="replace --out if it is there")
    new.add_argument("--dump-path", metavar="DIR", help="an existing directory for what no callback takes")
    new.add_argument("--model", metavar="NAME", help="of this model only")
    new.add_argument("--layer", action="append", metavar="OP", help="this operator; may be repeated")
    new.add_argument(
        "--watch", action="append", metavar="OP", help="watch the outputs of this one; may be repeated"
    )
    new.add_argument(
        "--range", nargs=2, action="append", metavar=("BEGIN", "END"), help="the operators from BEGIN to END"
    )
    for kind in ("type", "name"):
        new.add_argument(
            f"--skip-{kind}",
            nargs=2,
            action="append",
            metavar=(kind.upper(), "POS,..."),
            help=f"not these inputs and outputs of operators of this {kind}: input0,output1",
        )
    new.add_argument("--dump-mode", metavar="WHICH", help="input, output or all")
    new.add_argument("--level", metavar="LEVEL", help="op, kernel or all")
    new.add_argument("--step", metavar="STEPS", help="iterations, such as 0|3-5|10")
    new.add_argument("--data", metavar="KIND", help="tensor or stats")
    new.add_argument("--stats", metavar="NAME,...", help="which statistics: Max,Min,...")
    new.add_argument(
        "--kernel-data", metavar="KIND,...", help="all, or some of printf,tensor,assert,timestamp"
    )
    new.add_argument("--scene", metavar="SCENE", help="of exception dumps (default: aic_err_brief_dump)")


def run(args: Namespace) -> int:
    """Do what the action says and return the exit code."""
    return {"check": _check, "explain": _explain, "new": _new, "schema": _schema}[str(args.action)](args)


def report_problems(problems: Iterable[Problem], name: Path) -> None:
    """Print the problems of the configuration *name* on standard error, as `check` prints them."""
    for problem in problems:
        print(f"dumpstream: {_line(problem, name)}", file=sys.stderr)


def operators_in(path: Path) -> tuple[Operator, ...]:
    """Return the operators in the file that ``--ops`` names.

    Raises:
        DumpstreamError: it cannot be read, or is no list of operators.
    """
    from dumpstream.config import read_operators  # noqa: PLC0415 - --help need not wait for it

    try:
        return read_operators(path.read_bytes())
    except OSError as exc:
        raise DumpstreamError(f"{path} cannot be read: {exc.strerror}; give --ops a JSON file") from exc


def _line(problem: Problem, name: Path) -> str:
    severity = "error" if problem.is_error else "warning"
    answer = [str(part) for part in (problem.acl_error, problem.message_class) if part is not None]
    about = f"{problem.rule}{': CANN says ' if answer else ''}{', '.join(answer)}"
    return printable(f"{name}: {severity}: {problem.path}: {problem.text} [{about}]")


def _check(args: Namespace) -> int:
    from dumpstream.config import check_file  # noqa: PLC0415 - --help need not wait for it

    result = check_file(args.file, strict=args.strict)
    if args.json:
        problems = [problem.as_dict() for problem in result.problems]
        print(json.dumps({"accepted": not result.errors, "problems": problems}, indent=2))
    else:
        for problem in result.problems:
            print(_line(problem, args.file))
        counts = f"{count_text(len(result.errors), 'error')}, {count_text(len(result.warnings), 'warning')}"
        print(f"{'refused' if result.errors else 'accepted'}: {counts}")
    return 1 if result.errors else 0


def _explain(args: Namespace) -> int:
    from dumpstream.config import check_file, explain  # noqa: PLC0415 - --help need not wait for it

    result = check_file(args.file)
    if result.config is None or result.errors:
        report_problems(result.errors, args.file)
        return 1
    explanation = explain(result.config.dump)
    for title, sentences in explanation._asdict().items():
        for sentence in sentences:
            print(f"{title:<6} {printable(sentence)}")
    for problem in result.warnings:
        print(f"note   {printable(f'{problem.path}: {problem.text}')}")
    if args.ops is not None:
        _print_matches(result.config.dump, args.ops)
    return 0


def _print_matches(settings: DumpSettings, path: Path) -> None:
    from dumpstream.config import Matcher  # noqa: PLC0415 - as above

    operators = operators_in(path)
    matcher = Matcher(settings, operators)
    answers = {True: "dumped", False: "not", None: "depends"}
    count = 0
    for operator in operators:
        dumped, reason = matcher.match(operator)
        count += dumped is True
        print(f"{answers[dumped]:<7} {printable(f'{operator.name}: {reason}')}")
    print(f"{count} of {count_text(len(operators), 'operator')} dumped")


def _new(args: Namespace) -> int:
    from dumpstream.config import check_bytes  # noqa: PLC0415 - --help need not wait for it

    settings = {key: value for key, value in _settings(args).items() if value is not None}
    text = json.dumps({"dump": settings}, indent=4, ensure_ascii=False) + "\n"
    result = check_bytes(text.encode(errors="surrogateescape"))
    report_problems(result.problems, args.out)
    if result.config is None or result.errors:
        return 1
    if args.mode not in result.config.dump.modes:
        print(f"dumpstream: --scene {printable(args.scene)} is not for --mode {args.mode}", file=sys.stderr)
        return _USAGE
    flags = os.O_TRUNC if args.force else os.O_EXCL
    try:
        descriptor = os.open(args.out, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(text)
    except FileExistsError:
        raise DumpstreamError(f"{args.out} is there already; --force replaces it") from None
    except OSError as exc:
        raise DumpstreamError(f"{args.out} cannot be written: {exc.strerror}; choose another --out") from exc
    return 0


def _settings(args: Namespace) -> dict[str, Any]:
    """Return the ``dump`` object that the flags mean; None is for what is not said."""
    item = {
        "model_name": args.model,
        "layer": args.layer,
        "optype_blacklist": _blacklist(args.skip_type),
        "opname_blacklist": _blacklist(args.skip_name),
        "opname_range": [{"begin": begin, "end": end} for begin, end in args.range or ()] or None,
        "watcher_nodes": args.watch,
    }
    selection = {key: value for key, value in item.items() if value is not None}
    scenes = {"watch": "watcher", "exception": "aic_err_brief_dump"}
    return {
        "dump_path": args.dump_path,
        "dump_list": [selection] if selection or args.mode in ("model", "op", "watch") else None,
        "dump_mode": args.dump_mode,
        "dump_level": args.level,
        "dump_op_switch": "on" if args.mode == "op" else None,
        "dump_step": args.step,
        "dump_data": args.data,
        "dump_stats": args.stats and args.stats.split(","),
        "dump_kernel_data": args.kernel_data,
        "dump_debug": "on" if args.mode == "overflow" else None,
        "dump_scene": args.scene or scenes.get(args.mode),
    }


def _blacklist(pairs: list[tuple[str, str]] | None) -> list[dict[str, Any]] | None:
    return [{"name": name, "pos": pos.split(",")} for name, pos in pairs or ()] or None


def _schema(_: Namespace) -> int:
    from dumpstream.config import json_schema  # noqa: PLC0415 - --help need not wait for it

    print(json.dumps(json_schema(), indent=2))
    return 0
