"""The actions on dump configurations: check, explain, new and schema."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from dumpstream._errors import DumpstreamError
from dumpstream.cli._display import count_text, print_json, printable
from dumpstream.cli._exit import FAILED, WrongUsageError
from dumpstream.cli._problems import print_problems, problem_text
from dumpstream.config import Matcher, check_bytes, check_file, explain, json_schema, read_operators

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from dumpstream.config import DumpSettings, Operator


def run(args: Namespace) -> int:
    return {"check": _check, "explain": _explain, "new": _new, "schema": _schema}[str(args.action)](args)


def operators_in(path: Path) -> tuple[Operator, ...]:
    """Return the operators in the file that ``--ops`` names.

    Raises:
        DumpstreamError: it cannot be read, or is not a list of operators.
    """
    try:
        return read_operators(path.read_bytes())
    except OSError as exc:
        raise DumpstreamError(f"{path} cannot be read: {exc.strerror}; give --ops a JSON file") from exc


def _check(args: Namespace) -> int:
    result = check_file(args.file, strict=args.strict)
    if args.json:
        problems = [problem.as_dict() for problem in result.problems]
        print_json({"accepted": not result.errors, "problems": problems})
    else:
        for problem in result.problems:
            print(problem_text(problem, args.file))
        counts = f"{count_text(len(result.errors), 'error')}, {count_text(len(result.warnings), 'warning')}"
        print(f"{'refused' if result.errors else 'accepted'}: {counts}")
    return FAILED if result.errors else 0


def _explain(args: Namespace) -> int:
    result = check_file(args.file)
    if result.config is None or result.errors:
        print_problems(result.errors, args.file)
        return FAILED
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
    settings = {key: value for key, value in _settings(args).items() if value is not None}
    text = json.dumps({"dump": settings}, indent=4, ensure_ascii=False) + "\n"
    result = check_bytes(text.encode(errors="surrogateescape"))
    print_problems(result.problems, args.out)
    if result.config is None or result.errors:
        return FAILED
    if args.mode not in result.config.dump.modes:
        raise WrongUsageError(f"--scene {args.scene} is not for --mode {args.mode}")
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
