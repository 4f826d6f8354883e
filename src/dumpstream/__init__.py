"""Streams Ascend operator dumps from the ACL callback to whole, compressed, verifiable files."""

from importlib import import_module
from typing import TYPE_CHECKING

from dumpstream._errors import (
    AclError,
    CaptureInUseError,
    CollectorError,
    ConfigError,
    DestinationError,
    DestinationInUseError,
    DumpFormatError,
    DumpstreamError,
    FileRefusedError,
    LibraryNotFoundError,
    NotACaptureError,
    ObjectMissingError,
    OrderError,
    PartError,
    ProfilingError,
    ProfilingInUseError,
    RingError,
    SinkError,
    StoreError,
)
from dumpstream.acl import load_acl
from dumpstream.capture import Capture, open_capture
from dumpstream.chunk import Chunk
from dumpstream.codes import AclCode
from dumpstream.driver import Driver
from dumpstream.lifecycle import Lifecycle, Owner
from dumpstream.objectstore import Prefix
from dumpstream.opname import OpName, parse_name
from dumpstream.options import CaptureOptions
from dumpstream.outside.agent import Attachment, agent_library, attach, target_environment
from dumpstream.outside.collector import Collector, open_collector
from dumpstream.outside.process import CapturedProcess
from dumpstream.outside.recovery import recover
from dumpstream.profiling import (
    AicoreMetric,
    Collect,
    Profile,
    Profiler,
    ProfileSettings,
    ProfilingWarning,
    Subscriber,
    open_profile,
)
from dumpstream.pyacl import PyAclSource, load_pyacl
from dumpstream.report import LossCount, Report
from dumpstream.sinks import Fsync, Sink, SinkFile, SinkSettings, Stored, WholeFile, load_sink
from dumpstream.source import Batch, Loss, OnFull, RingOptions, RingSource, Source
from dumpstream.stored import StoredCapture
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from dumpstream.dumpfile import DumpFile
    from dumpstream.header import Tensor
    from dumpstream.layouts import to_layout
    from dumpstream.statistics import tensor_statistics
    from dumpstream.table import TensorStatistics

__all__ = [
    "AclCode",
    "AclError",
    "AicoreMetric",
    "Attachment",
    "Batch",
    "Capture",
    "CaptureInUseError",
    "CaptureOptions",
    "CapturedProcess",
    "Chunk",
    "Collect",
    "Collector",
    "CollectorError",
    "ConfigError",
    "DestinationError",
    "DestinationInUseError",
    "Driver",
    "DumpFile",
    "DumpFormatError",
    "DumpstreamError",
    "FileRefusedError",
    "Fsync",
    "LibraryNotFoundError",
    "Lifecycle",
    "Loss",
    "LossCount",
    "NotACaptureError",
    "ObjectMissingError",
    "OnFull",
    "OpName",
    "OrderError",
    "Owner",
    "PartError",
    "Prefix",
    "Profile",
    "ProfileSettings",
    "Profiler",
    "ProfilingError",
    "ProfilingInUseError",
    "ProfilingWarning",
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
    "StoreError",
    "Stored",
    "StoredCapture",
    "Subscriber",
    "Tensor",
    "TensorStatistics",
    "Verdict",
    "WholeFile",
    "agent_library",
    "attach",
    "load_acl",
    "load_pyacl",
    "load_sink",
    "open_capture",
    "open_collector",
    "open_profile",
    "parse_name",
    "recover",
    "target_environment",
    "tensor_statistics",
    "to_layout",
]

# Loaded when first asked for: they need numpy, which takes longer to load than all the rest.
_DEFERRED = {
    "DumpFile": "dumpstream.dumpfile",
    "Tensor": "dumpstream.header",
    "TensorStatistics": "dumpstream.table",
    "tensor_statistics": "dumpstream.statistics",
    "to_layout": "dumpstream.layouts",
}


def __getattr__(name: str) -> object:
    """Return the name that is loaded late."""
    if name not in _DEFERRED:
        raise AttributeError(f"module 'dumpstream' has no attribute {name!r}")
    return getattr(import_module(_DEFERRED[name]), name)
