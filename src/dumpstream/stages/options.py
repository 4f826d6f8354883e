"""The options of a capture, and which stage each belongs to."""

import os
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict, TypeVar

from dumpstream.codec import Codec
from dumpstream.pipeline import PipelineOptions
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks import SinkSettings
from dumpstream.source import OnFull, RingOptions
from dumpstream.system.durable import Fsync
from dumpstream.system.location import Prefix

_Options = TypeVar("_Options", RingOptions, ReassemblyOptions, PipelineOptions, SinkSettings)


class CaptureOptions(TypedDict, total=False):
    """The options of `open_capture`, each with its meaning and default in the class that holds it.

    `RingOptions`, `ReassemblyOptions`, `PipelineOptions` and `SinkSettings`, in this order.
    """

    buffer_bytes: int
    buffer_file: str | os.PathLike[str] | None
    on_full: OnFull | str
    block_timeout: float
    max_file_bytes: int
    idle_timeout: float | None
    text_idle_timeout: float | None
    max_digests: int
    max_header_bytes: int
    max_pieces: int
    max_open_files: int
    max_open_bytes: int
    held_bytes: int
    gathered_bytes: int
    only: Sequence[str]
    drain_timeout: float | None
    codec: Codec | str
    level: int
    workers: int
    fsync: Fsync | str
    max_descriptors: int
    pack: bool | None
    spill: str | os.PathLike[str] | None
    spill_bytes: int


class StageOptions(NamedTuple):
    """The options of a capture, checked and given to the stages."""

    ring: RingOptions | None  #: None if the source is not the capture's own
    reassembly: ReassemblyOptions
    pipeline: PipelineOptions
    sinks: SinkSettings
    given: dict[str, Any]  #: the options that were set, as values for the manifest
    on_full: OnFull | None = None  #: what a full spill does, if it was set without a ring

    @classmethod
    def divide(
        cls, options: CaptureOptions, *, directory: Path | Prefix | None, with_ring: bool = True
    ) -> Self:
        """Give every one of *options* to its stage; if the capture is in a store, sinks get no *directory*.

        Raises:
            TypeError: an option is unknown; the message names similar ones.
            ValueError: an option is out of range, or it belongs to the ring and *with_ring* is false.
        """
        _refuse_unknown(options)
        if not with_ring:
            _refuse_ring_options(options)
        return cls(
            _pick(RingOptions, options) if with_ring else None,
            _pick(ReassemblyOptions, options),
            _pick(PipelineOptions, options),
            _pick(
                SinkSettings,
                options,
                directory=directory if isinstance(directory, Path) else Path(),
                in_store=isinstance(directory, Prefix),
            ),
            {name: _as_json(value) for name, value in options.items()},
            OnFull(options["on_full"]) if "on_full" in options and not with_ring else None,
        )


def _as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [*map(_as_json, value)]
    return value if isinstance(value, int | float | None) else str(value)


def _pick(kind: type[_Options], options: CaptureOptions, **more: Any) -> _Options:
    names = {field.name for field in fields(kind)}
    values: dict[str, Any] = {name: value for name, value in options.items() if name in names}
    return kind(**values, **more)


def _refuse_unknown(options: CaptureOptions) -> None:
    known = CaptureOptions.__annotations__
    for name in options:
        if name not in known:
            similar = get_close_matches(name, known, cutoff=0.65) or known
            raise TypeError(f"a capture has no option {name!r}; did you mean {' or '.join(similar)}?")


def _refuse_ring_options(options: CaptureOptions) -> None:
    of_ring = [field.name for field in fields(RingOptions) if field.name in options]
    if options.get("spill") is not None and "on_full" in of_ring:
        of_ring.remove("on_full")  # it is also for the spill, which is the capture's
    if of_ring:
        raise ValueError(
            f"{', '.join(of_ring)}: with source= the ring is not the capture's; give the source RingOptions"
        )
