"""The flags of the commands that capture; their defaults live in the option classes."""

from argparse import ArgumentParser, Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from dumpstream.cli._arguments import size
from dumpstream.pipeline import PipelineOptions
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks import SinkSettings
from dumpstream.source import OnFull, RingOptions
from dumpstream.stages.options import CaptureOptions
from dumpstream.system.durable import Fsync


def add_capture_arguments(parser: ArgumentParser) -> None:
    """Declare the flags that `capture_options` reads."""
    _add_destination(parser)
    _add_ring(parser)
    _add_files(parser)
    parser.set_defaults(**_defaults())
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to all of its flags
        if action.default is not None and action.metavar and "%(default)s" not in (action.help or ""):
            action.help = f"{action.help or action.dest.replace('_', ' ')} (default: %(default)s)"


def _add_destination(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("destination")
    add = group.add_argument
    add(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go; may be repeated, and replaces the default zstd: (files below --out)",
    )
    add("--pack", action="store_true", help="collect small files in packs (ZIP containers with zstd members)")
    add("--spill", type=Path, metavar="DIR", help="where files wait while an object store is away")
    add("--spill-bytes", type=size, metavar="SIZE", help="how much may wait there")
    earlier = group.add_mutually_exclusive_group()
    earlier.add_argument("--append", action="store_true", help="add a run to the capture that is in --out")
    earlier.add_argument("--force", action="store_true", help="delete the capture that is in --out first")


def _add_ring(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("ring").add_argument
    add("--buffer-bytes", type=size, metavar="SIZE", help="the size of the ring")
    add(
        "--buffer-file",
        type=Path,
        metavar="FILE",
        help="keep the ring in this new file, which may exceed the memory",
    )
    add(
        "--on-full",
        type=OnFull,
        choices=list(OnFull),
        help="block: wait for space, lose nothing; drop: never stall the model, lose files by name",
    )
    add(
        "--block-timeout", type=float, metavar="SECONDS", help="with block, a chunk that waits longer is lost"
    )
    add("--max-file-bytes", type=size, metavar="SIZE")


def _add_files(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("files").add_argument
    add("--level", type=int, help="zstd level")
    add("--workers", type=int, help="threads that compress")
    add("--fsync", type=Fsync, choices=list(Fsync), help="when bytes are forced to disk")
    add("--max-descriptors", type=int, metavar="N")
    add("--idle-timeout", type=float, metavar="SECONDS", help="close a file that has got nothing for so long")
    add(
        "--text-idle-timeout",
        type=float,
        metavar="SECONDS",
        help="the same for statistics text, which has no last chunk",
    )
    add(
        "--max-digests",
        type=int,
        metavar="N",
        help="chunks of an open file that are recognised when they are sent again",
    )
    add("--max-header-bytes", type=size, metavar="SIZE")
    add("--max-pieces", type=int, metavar="N", help="pieces of an open file that may wait behind a gap")
    add(
        "--max-open-files",
        type=int,
        metavar="N",
        help="one more open file closes the one that is idle longest",
    )
    add("--max-open-bytes", type=size, metavar="SIZE", help="the same for the memory that open files take")
    add("--held-bytes", type=size, metavar="SIZE")
    add("--gathered-bytes", type=size, metavar="SIZE")


def _defaults() -> dict[str, Any]:
    """Return the defaults of the options of a capture."""
    # No ring is made: --help must work on a machine with less memory than a ring takes.
    found = {field.name: field.default for field in fields(RingOptions)}
    for options in (ReassemblyOptions(), PipelineOptions(), SinkSettings(directory=Path())):
        found |= {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: found[name] for name in CaptureOptions.__annotations__}


def capture_options(args: Namespace) -> CaptureOptions:
    """Return the options that the flags of `add_capture_arguments` ask for, not yet checked."""
    return cast("CaptureOptions", {name: getattr(args, name) for name in CaptureOptions.__annotations__})
