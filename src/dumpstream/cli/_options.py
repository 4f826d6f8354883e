"""The flags of the commands that capture; their defaults live in the option classes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from dumpstream.cli._arguments import size
from dumpstream.pipeline import PipelineOptions
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks import SinkSettings
from dumpstream.source import OnFull, RingOptions
from dumpstream.stages.options import CaptureOptions
from dumpstream.system.durable import Fsync

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_capture_arguments(parser: ArgumentParser) -> None:
    """Declare the flags that `capture_options` reads."""
    # Not made: help is for machines with less memory than the ring takes by default, too.
    ring = SimpleNamespace(**{field.name: field.default for field in fields(RingOptions)})
    reassembly, pipeline = ReassemblyOptions(), PipelineOptions()
    sinks = SinkSettings(directory=Path())
    place = parser.add_argument_group("destination")
    place.add_argument(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go; may be repeated, and replaces the default zstd: (files below --out)",
    )
    place.add_argument(
        "--pack", action="store_true", help="collect small files in packs (ZIP containers with zstd members)"
    )
    place.add_argument(
        "--spill", type=Path, metavar="DIR", help="where files wait while an object store is away"
    )
    place.add_argument(
        "--spill-bytes", type=size, default=sinks.spill_bytes, metavar="SIZE", help="how much may wait there"
    )
    earlier = place.add_mutually_exclusive_group()
    earlier.add_argument("--append", action="store_true", help="add a run to the capture that is in --out")
    earlier.add_argument("--force", action="store_true", help="delete the capture that is in --out first")
    group = parser.add_argument_group("ring")
    group.add_argument(
        "--buffer-bytes", type=size, default=ring.buffer_bytes, metavar="SIZE", help="its size"
    )
    group.add_argument(
        "--buffer-file", type=Path, metavar="FILE", help="keep it in this new file; it may exceed the memory"
    )
    group.add_argument(
        "--on-full",
        type=OnFull,
        choices=list(OnFull),
        default=ring.on_full,
        help="block: wait for space, lose nothing; drop: never stall the model, lose files by name",
    )
    group.add_argument(
        "--block-timeout",
        type=float,
        default=ring.block_timeout,
        metavar="SECONDS",
        help="with block, a chunk that waits longer is lost",
    )
    group.add_argument("--max-file-bytes", type=size, default=ring.max_file_bytes, metavar="SIZE")
    group = parser.add_argument_group("files")
    group.add_argument("--level", type=int, default=sinks.level, help="zstd level")
    group.add_argument("--workers", type=int, default=sinks.workers, help="threads that compress")
    group.add_argument(
        "--fsync", type=Fsync, choices=list(Fsync), default=sinks.fsync, help="when bytes are forced to disk"
    )
    group.add_argument("--max-descriptors", type=int, default=sinks.max_descriptors, metavar="N")
    group.add_argument(
        "--idle-timeout",
        type=float,
        default=reassembly.idle_timeout,
        metavar="SECONDS",
        help="close a file of which nothing has come for so long",
    )
    group.add_argument(
        "--text-idle-timeout",
        type=float,
        default=reassembly.text_idle_timeout,
        metavar="SECONDS",
        help="the same for statistics text, which has no last chunk",
    )
    group.add_argument(
        "--max-digests",
        type=int,
        default=reassembly.max_digests,
        metavar="N",
        help="chunks of an open file that are known again when they are re-sent",
    )
    group.add_argument("--max-header-bytes", type=size, default=reassembly.max_header_bytes, metavar="SIZE")
    group.add_argument("--held-bytes", type=size, default=pipeline.held_bytes, metavar="SIZE")
    group.add_argument("--gathered-bytes", type=size, default=pipeline.gathered_bytes, metavar="SIZE")
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to all of its flags
        if action.default is not None and action.metavar and "%(default)s" not in (action.help or ""):
            action.help = f"{action.help or action.dest.replace('_', ' ')} (default: %(default)s)"


def capture_options(args: Namespace) -> CaptureOptions:
    """Return the options that the flags declared by `add_capture_arguments` stand for, not yet checked."""
    return cast("CaptureOptions", {name: getattr(args, name) for name in CaptureOptions.__annotations__})
