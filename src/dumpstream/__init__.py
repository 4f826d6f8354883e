"""Streams Ascend operator dumps from the ACL callback to whole, compressed, verifiable files."""

from dumpstream._errors import (
    AclError,
    CaptureInUseError,
    DestinationError,
    DestinationInUseError,
    DumpstreamError,
    LibraryNotFoundError,
    NotACaptureError,
    RingError,
    SinkError,
)
from dumpstream.capture import Capture, CaptureOptions, open_capture
from dumpstream.chunk import Chunk
from dumpstream.report import LossCount, Report
from dumpstream.sinks import Fsync, Sink, SinkFile, SinkSettings, Stored, WholeFile, load_sink
from dumpstream.source import Batch, Loss, OnFull, PyAclSource, RingOptions, RingSource, Source
from dumpstream.stored import StoredCapture
from dumpstream.verdict import Verdict

__all__ = [
    "AclError",
    "Batch",
    "Capture",
    "CaptureInUseError",
    "CaptureOptions",
    "Chunk",
    "DestinationError",
    "DestinationInUseError",
    "DumpstreamError",
    "Fsync",
    "LibraryNotFoundError",
    "Loss",
    "LossCount",
    "NotACaptureError",
    "OnFull",
    "PyAclSource",
    "Report",
    "RingError",
    "RingOptions",
    "RingSource",
    "Sink",
    "SinkError",
    "SinkFile",
    "SinkSettings",
    "Source",
    "Stored",
    "StoredCapture",
    "Verdict",
    "WholeFile",
    "load_sink",
    "open_capture",
]
