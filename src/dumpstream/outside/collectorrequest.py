"""CollectorRequest: what a collector is to be, and what of it each process gets, as values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dumpstream.archive.destination import below
from dumpstream.outside.wire import encode
from dumpstream.run.request import DEFAULT_SINKS, Request
from dumpstream.sharedsource import SharedSource
from dumpstream.source import OnFull, RingOptions
from dumpstream.system.location import Prefix, is_remote

#: With fewer a sink works, but opens the same directories again and again.
_GOOD_DESCRIPTORS = 8
#: With less a capture works, but closes files that are merely slow.
_GOOD_OPEN_BYTES = 2 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectorRequest(Request):
    """What a collector is to be: the request for the destination of all its captures."""

    destination: Path | Prefix
    sinks: Sequence[str] = DEFAULT_SINKS
    of_processes: bool = True

    @property
    def ring(self) -> RingOptions:
        """What all processes have together."""
        assert self.stages.ring is not None
        return self.stages.ring

    def part(self, directory: str, source: SharedSource, captures: int) -> Request:
        """Return the request for one of so many captures, with its part of what they have together."""
        destination, pipeline, sinks = self.destination / directory, self.stages.pipeline, self.stages.sinks
        descriptors = max(sinks.max_descriptors // captures, min(sinks.max_descriptors, _GOOD_DESCRIPTORS))
        reassembly = self.stages.reassembly
        open_bytes = reassembly.max_open_bytes
        open_bytes = max(open_bytes // captures, min(open_bytes, _GOOD_OPEN_BYTES))
        stages = self.stages._replace(
            reassembly=replace(reassembly, max_open_bytes=open_bytes),
            pipeline=replace(
                pipeline,
                held_bytes=pipeline.held_bytes // captures,
                gathered_bytes=pipeline.gathered_bytes // captures,
            ),
            sinks=replace(
                sinks,
                directory=destination if isinstance(destination, Path) else Path(),
                in_store=isinstance(destination, Prefix),
                max_descriptors=descriptors,
                spill_bytes=max(sinks.spill_bytes // captures, 1),
            ),
        )
        return Request(
            destination=destination,
            stages=stages,
            sinks=[sink_below(sink, directory) for sink in self.sinks],
            source=source,
            prefix=f"{directory}/",
            alert=self.alert,
        )

    def answer(self, size: int) -> bytes:
        """Return what an agent is told beside its ring of *size* bytes."""
        fields: list[tuple[str, str | int]] = [
            ("size", size),
            ("block", int(self.ring.on_full is OnFull.BLOCK)),
            ("block_ns", int(self.ring.block_timeout * 1e9)),
            ("max_file_bytes", self.ring.max_file_bytes),
        ]
        if self.config is not None:
            fields.append(("config", str(self.config)))
        return encode("ring", fields)


def sink_below(spec: str, directory: str) -> str:
    """Return the sink that *spec* means for one process: a location of its own below the common one."""
    if is_remote(spec):
        return (Prefix.parse(spec) / directory).url
    where, mark, choices = spec.partition("?")
    kind, colon, location = where.partition(":")
    return f"{kind}{colon}{below(location, directory)}{mark}{choices}" if location else spec
