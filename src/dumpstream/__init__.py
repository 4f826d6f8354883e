"""Streams Ascend operator dumps from the ACL callback to whole, compressed, verifiable files."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from dumpstream.acl.driver import Driver
    from dumpstream.acl.library import load_acl
    from dumpstream.acl.lifecycle import Lifecycle, Owner
    from dumpstream.acl.pyacl import PyAclSource, load_pyacl
    from dumpstream.capture import Capture, open_capture
    from dumpstream.chunk import Chunk
    from dumpstream.codes import AclCode
    from dumpstream.format.header import Tensor
    from dumpstream.format.layouts import to_layout
    from dumpstream.format.opname import OpName, parse_name
    from dumpstream.format.verdict import Verdict
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
    from dumpstream.reading.dumpfile import DumpFile
    from dumpstream.reading.stored import StoredCapture
    from dumpstream.report import LossCount, Report
    from dumpstream.sinks import Sink, SinkFile, SinkSettings, Stored, WholeFile, load_sink
    from dumpstream.source import Batch, Loss, OnFull, RingOptions, RingSource, Source
    from dumpstream.statistics.running import tensor_statistics
    from dumpstream.statistics.table import TensorStatistics
    from dumpstream.system.durable import Fsync
    from dumpstream.system.location import Prefix

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

# Where each is. They are loaded when first asked for: the command line, and who needs few, need not wait.
_MODULES = {
    "AclCode": "dumpstream.codes",
    "AclError": "dumpstream._errors",
    "AicoreMetric": "dumpstream.profiling",
    "Attachment": "dumpstream.outside.agent",
    "Batch": "dumpstream.source",
    "Capture": "dumpstream.capture",
    "CaptureInUseError": "dumpstream._errors",
    "CaptureOptions": "dumpstream.options",
    "CapturedProcess": "dumpstream.outside.process",
    "Chunk": "dumpstream.chunk",
    "Collect": "dumpstream.profiling",
    "Collector": "dumpstream.outside.collector",
    "CollectorError": "dumpstream._errors",
    "ConfigError": "dumpstream._errors",
    "DestinationError": "dumpstream._errors",
    "DestinationInUseError": "dumpstream._errors",
    "Driver": "dumpstream.acl.driver",
    "DumpFile": "dumpstream.reading.dumpfile",
    "DumpFormatError": "dumpstream._errors",
    "DumpstreamError": "dumpstream._errors",
    "FileRefusedError": "dumpstream._errors",
    "Fsync": "dumpstream.system.durable",
    "LibraryNotFoundError": "dumpstream._errors",
    "Lifecycle": "dumpstream.acl.lifecycle",
    "Loss": "dumpstream.source",
    "LossCount": "dumpstream.report",
    "NotACaptureError": "dumpstream._errors",
    "ObjectMissingError": "dumpstream._errors",
    "OnFull": "dumpstream.source",
    "OpName": "dumpstream.format.opname",
    "OrderError": "dumpstream._errors",
    "Owner": "dumpstream.acl.lifecycle",
    "PartError": "dumpstream._errors",
    "Prefix": "dumpstream.system.location",
    "Profile": "dumpstream.profiling",
    "ProfileSettings": "dumpstream.profiling",
    "Profiler": "dumpstream.profiling",
    "ProfilingError": "dumpstream._errors",
    "ProfilingInUseError": "dumpstream._errors",
    "ProfilingWarning": "dumpstream.profiling",
    "PyAclSource": "dumpstream.acl.pyacl",
    "Report": "dumpstream.report",
    "RingError": "dumpstream._errors",
    "RingOptions": "dumpstream.source",
    "RingSource": "dumpstream.source",
    "Sink": "dumpstream.sinks",
    "SinkError": "dumpstream._errors",
    "SinkFile": "dumpstream.sinks",
    "SinkSettings": "dumpstream.sinks",
    "Source": "dumpstream.source",
    "StoreError": "dumpstream._errors",
    "Stored": "dumpstream.sinks",
    "StoredCapture": "dumpstream.reading.stored",
    "Subscriber": "dumpstream.profiling",
    "Tensor": "dumpstream.format.header",
    "TensorStatistics": "dumpstream.statistics.table",
    "Verdict": "dumpstream.format.verdict",
    "WholeFile": "dumpstream.sinks",
    "agent_library": "dumpstream.outside.agent",
    "attach": "dumpstream.outside.agent",
    "load_acl": "dumpstream.acl.library",
    "load_pyacl": "dumpstream.acl.pyacl",
    "load_sink": "dumpstream.sinks",
    "open_capture": "dumpstream.capture",
    "open_collector": "dumpstream.outside.collector",
    "open_profile": "dumpstream.profiling",
    "parse_name": "dumpstream.format.opname",
    "recover": "dumpstream.outside.recovery",
    "target_environment": "dumpstream.outside.agent",
    "tensor_statistics": "dumpstream.statistics",
    "to_layout": "dumpstream.format.layouts",
}


def __getattr__(name: str) -> object:
    """Return what is loaded now that somebody asks for it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'dumpstream' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return also what is not loaded yet."""
    return sorted({*globals(), *__all__})
