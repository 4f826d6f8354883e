"""Check, explain and write dump configurations (acl.json).

`check` finds everything that CANN or its documents object to. `explain` says in words what will be dumped,
where it goes and what it costs. `new` writes a configuration. `schema` prints a JSON Schema for editors.

Examples:
  dumpstream config check acl.json
  dumpstream config check acl.json --json | jq -r '.problems[] | .path'
  dumpstream config explain acl.json --ops graph.json
  dumpstream config new --mode model --dump-path /data/npu --level op --layer conv1 --out acl.json
  dumpstream config schema > acl.schema.json

exit codes: 0 the configuration is accepted, warnings or not; 1 it is refused; 2 wrong usage
"""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.cli._arguments import local_path
from dumpstream.cli._display import count_text, print_json, print_text, printable
from dumpstream.cli._exit import FAILED, WrongUsageError
from dumpstream.cli._operators import operators_in
from dumpstream.cli._problems import print_problems, problem_text, severity_of
from dumpstream.cli.screen.colour import verdict
from dumpstream.config import DumpSettings, Matcher, check_bytes, check_file, explain, json_schema

_MODES = ("model", "op", "exception", "overflow", "watch")


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    check = actions.add_parser("check", help="find everything that is wrong with a configuration")
    check.add_argument("file", type=local_path, metavar="FILE", help="the configuration")
    check.add_argument(
        "--strict", action="store_true", help="also refuse what only documents or some releases refuse"
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    explain = actions.add_parser("explain", help="say what will be dumped, where, and what it costs")
    explain.add_argument("file", type=local_path, metavar="FILE", help="the configuration")
    explain.add_argument(
        "--ops", type=local_path, metavar="FILE", help="say for each of these operators whether it is dumped"
    )
    _add_new(actions.add_parser("new", help="write a configuration"))
    actions.add_parser("schema", help="print the JSON Schema of configurations")


def _add_new(new: ArgumentParser) -> None:
    add = new.add_argument
    add("--mode", choices=_MODES, required=True, help="the purpose of the configuration")
    add("--out", type=local_path, metavar="FILE", required=True, help="the new file")
    add("--force", action="store_true", help="replace --out if it is there")
    add("--dump-path", metavar="DIR", help="an existing directory for data that no callback takes")
    add("--model", metavar="NAME", help="only operators of this model")
    add("--layer", action="append", metavar="OP", help="this operator; may be repeated")
    add("--watch", action="append", metavar="OP", help="watch the outputs of this operator; may be repeated")
    add("--range", nargs=2, action="append", metavar=("BEGIN", "END"), help="the operators from BEGIN to END")
    for kind in ("type", "name"):
        add(
            f"--skip-{kind}",
            nargs=2,
            action="append",
            metavar=(kind.upper(), "POS,..."),
            help=f"leave out these inputs and outputs of operators of this {kind}: input0,output1",
        )
    add("--dump-mode", metavar="WHICH", help="input, output or all")
    add("--level", metavar="LEVEL", help="op, kernel or all")
    add("--step", metavar="STEPS", help="iterations, such as 0|3-5|10")
    add("--data", metavar="KIND", help="tensor or stats")
    add("--stats", metavar="NAME,...", help="which statistics: Max,Min,...")
    add("--kernel-data", metavar="KIND,...", help="all, or some of printf,tensor,assert,timestamp")
    add("--scene", metavar="SCENE", help="the scene of exception dumps (default: aic_err_brief_dump)")


def run(args: Namespace) -> int:
    return {"check": _check, "explain": _explain, "new": _new, "schema": _schema}[str(args.action)](args)


def _check(args: Namespace) -> int:
    result = check_file(args.file, strict=args.strict)
    if args.json:
        problems = [problem.as_dict() for problem in result.problems]
        print_json({"accepted": not result.errors, "problems": problems})
    else:
        for problem in result.problems:
            severity = verdict(severity_of(problem))
            print_text(f"{printable(str(args.file))}: {severity}: {problem_text(problem)}", indent=2)
        counts = f"{count_text(len(result.errors), 'error')}, {count_text(len(result.warnings), 'warning')}"
        print(f"{verdict('refused' if result.errors else 'accepted')}: {counts}")
    return FAILED if result.errors else 0


def _explain(args: Namespace) -> int:
    result = check_file(args.file)
    if result.config is None or result.errors:
        print_problems(result.errors, args.file)
        return FAILED
    explanation = explain(result.config.dump)
    for title, sentences in explanation._asdict().items():
        for sentence in sentences:
            print_text(f"{title:<6} {printable(sentence)}", indent=7)
    for problem in result.warnings:
        print_text(f"{verdict('note', 6)} {printable(f'{problem.path}: {problem.text}')}", indent=7)
    if args.ops is not None:
        _print_matches(result.config.dump, args.ops)
    return 0


def _print_matches(settings: DumpSettings, path: Path) -> None:
    operators = operators_in(path)
    matcher = Matcher(settings, operators)
    answers = {True: "dumped", False: "not", None: "depends"}
    counts = Counter[str]()
    for operator in operators:
        dumped, reason = matcher.match(operator)
        counts[answers[dumped]] += 1
        print_text(f"{verdict(answers[dumped], 7)} {printable(f'{operator.name}: {reason}')}", indent=8)
    depends = f", {counts['depends']} perhaps" if counts["depends"] else ""
    print(f"{counts['dumped']} of {count_text(len(operators), 'operator')} dumped{depends}")
    if settings.is_watch:
        print(f"{count_text(matcher.count_watch_dumps(), 'dump')} of watched operators in a step")


def _new(args: Namespace) -> int:
    settings = {key: value for key, value in _settings(args).items() if value is not None}
    if args.mode == "overflow" and "dump_list" in settings:
        raise WrongUsageError("--mode overflow takes no --model, --layer, --range, --watch or --skip-...")
    text = json.dumps({"dump": settings}, indent=4, ensure_ascii=False) + "\n"
    result = check_bytes(text.encode(errors="surrogateescape"))
    print_problems(result.problems, args.out)
    if result.config is None or result.errors:
        return FAILED
    if args.mode not in result.config.dump.modes:
        raise WrongUsageError(f"--scene {args.scene} is not for --mode {args.mode}")
    try:
        with args.out.open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DumpstreamError(f"{args.out} is there already; --force replaces it") from None
    except OSError as exc:
        raise DumpstreamError(f"{args.out} cannot be written: {exc.strerror}; choose another --out") from exc
    return 0


def _settings(args: Namespace) -> dict[str, Any]:
    """Return the ``dump`` object that the flags ask for; None stands for a key that is left out."""
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
    print_json(json_schema())
    return 0
