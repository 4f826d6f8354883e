"""The flags of the commands that capture; their defaults live in the option classes."""

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from dataclasses import fields
from enum import EnumType
from pathlib import Path
from typing import Any, TypeAlias, cast

from dumpstream.cli._alerts import add_alert_arguments, wants_alerts
from dumpstream.cli._arguments import local_path, size, size_word
from dumpstream.codec import Codec
from dumpstream.pipeline import PipelineOptions
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks import SinkSettings
from dumpstream.source import OnFull, RingOptions
from dumpstream.stages.options import CaptureOptions
from dumpstream.system.durable import Fsync

#: The type, the metavar and the help of flags.
_Flags: TypeAlias = dict[str, tuple[Callable[[str], Any], str | None, str]]
_RING: _Flags = {
    "--buffer-bytes": (size, "SIZE", "the size of the ring"),
    "--buffer-file": (local_path, "FILE", "keep the ring in this new file, which may exceed the memory"),
    "--on-full": (
        OnFull,
        None,
        "block: wait for space, lose nothing; drop: never stall the model, lose files by name",
    ),
    "--block-timeout": (float, "SECONDS", "with block, a chunk that waits longer is lost"),
    "--max-file-bytes": (size, "SIZE", "no chunk may end beyond this"),
}
_FILES: _Flags = {
    "--codec": (
        Codec,
        None,
        "how files are compressed: float is fastest, float-small smallest, auto chooses; zstd: .zst files",
    ),
    "--level": (int, None, "zstd level, for what zstd compresses"),
    "--workers": (int, None, "how many cores compress"),
    "--fsync": (Fsync, None, "when bytes are forced to disk"),
    "--max-descriptors": (int, "N", "files and directories that may be open at once"),
    "--idle-timeout": (float, "SECONDS", "close a file that has got nothing for so long"),
    "--text-idle-timeout": (float, "SECONDS", "the same for statistics text, which has no last chunk"),
    "--max-digests": (int, "N", "chunks of an open file that are recognised when they are sent again"),
    "--max-header-bytes": (size, "SIZE", "a header that comes in several chunks is read up to this size"),
    "--max-pieces": (int, "N", "pieces of an open file that may wait behind a gap"),
    "--max-open-files": (int, "N", "one more open file closes the one that is idle longest"),
    "--max-open-bytes": (size, "SIZE", "the same for the memory that open files take"),
    "--held-bytes": (size, "SIZE", "memory for pieces that wait behind a gap; more waits in a file"),
    "--gathered-bytes": (size, "SIZE", "memory for the beginnings of small files"),
    "--drain-timeout": (float, "SECONDS", "what is in the ring at the end and takes longer to store is lost"),
}


def add_capture_arguments(parser: ArgumentParser) -> None:
    """Declare the flags that `capture_options` reads."""
    _add_destination(parser)
    add_alert_arguments(parser)
    parser.add_argument(
        "--on-failure",
        choices=["continue", "stop"],
        default="continue",
        help="if a capture fails, as on a full disk: let the job go on, or end it with SIGTERM "
        "(default: continue)",
    )
    parser.add_argument(
        "--require-dump",
        action="store_true",
        help="exit with 3 if nothing is captured, for scripts that rely on a dump",
    )
    for title, flags in (("ring", _RING), ("files", _FILES)):
        add = parser.add_argument_group(title).add_argument
        for flag, (kind, metavar, help_text) in flags.items():
            choices: list[Any] | None = list(kind) if isinstance(kind, EnumType) else None
            add(flag, type=kind, choices=choices, metavar=metavar, help=help_text)
    parser.set_defaults(**_defaults())
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to all of its flags
        if action.default not in (None, []) and action.metavar:
            default = size_word(action.default) if action.type is size else f"{action.default}"
            action.help = f"{action.help} (default: {default.removesuffix('.0')})"


def _add_destination(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("destination")
    add = group.add_argument
    add(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go; may be repeated, and replaces the default zstd: (files below --out)",
    )
    add(
        "--only",
        action="append",
        metavar="PATTERN",
        help="store the bytes only of files whose names, as `ls` shows them, match: '*MatMul*'; may be "
        "repeated; the statistics sink sees all files",
    )
    add(
        "--pack",
        action=BooleanOptionalAction,
        help="collect files of up to 1 MiB in packs (ZIP containers), or none; by default "
        "those of up to 64 KiB in a directory, and none in a store",
    )
    add("--spill", type=local_path, metavar="DIR", help="where files wait while an object store is away")
    add("--spill-bytes", type=size, metavar="SIZE", help="how much may wait there")
    add(
        "--host",
        metavar="NAME",
        help="--out is a job of several hosts, and this one is called NAME there; auto takes the number that "
        "Slurm, torchrun or Kubernetes gives it, or else its host name",
    )
    earlier = group.add_mutually_exclusive_group()
    earlier.add_argument(
        "--append", action="store_true", help="add a run to the capture that is in --out, or there of --host"
    )
    earlier.add_argument(
        "--force", action="store_true", help="first delete the capture that is in --out, or there of --host"
    )


def _defaults() -> dict[str, Any]:
    """Return the defaults of the options of a capture."""
    # No ring is made: --help must work on a machine with less memory than a ring takes.
    found = {field.name: field.default for field in fields(RingOptions)}
    for options in (ReassemblyOptions(), PipelineOptions(), SinkSettings(directory=Path())):
        found |= {field.name: getattr(options, field.name) for field in fields(options)}
    found["only"] = []  # argparse adds patterns to a copy
    return {name: found[name] for name in CaptureOptions.__annotations__}


def capture_arguments(args: Namespace) -> dict[str, Any]:
    """Return what the flags ask `open_capture` or `open_collector` for, except for the destination."""
    given = {"config": args.config, "sinks": args.sink, "append": args.append, "force": args.force}
    given["alert"] = wants_alerts(args)
    return {**given, **capture_options(args)}


def capture_options(args: Namespace) -> CaptureOptions:
    """Return the options that the flags of `add_capture_arguments` ask for, not yet checked."""
    return cast("CaptureOptions", {name: getattr(args, name) for name in CaptureOptions.__annotations__})
