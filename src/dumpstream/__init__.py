"""Streams Ascend operator dumps from the ACL callback to whole, compressed, verifiable files."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dumpstream._errors import (
        AclError as AclError,
        CaptureCancelledError as CaptureCancelledError,
        CaptureInUseError as CaptureInUseError,
        CollectorError as CollectorError,
        CompanionError as CompanionError,
        ConfigError as ConfigError,
        CutOffError as CutOffError,
        DestinationError as DestinationError,
        DestinationInUseError as DestinationInUseError,
        DumpFormatError as DumpFormatError,
        DumpstreamError as DumpstreamError,
        FileRefusedError as FileRefusedError,
        LibraryNotFoundError as LibraryNotFoundError,
        NotACaptureError as NotACaptureError,
        ObjectMissingError as ObjectMissingError,
        OrderError as OrderError,
        PartError as PartError,
        ProfilingError as ProfilingError,
        ProfilingInUseError as ProfilingInUseError,
        RingError as RingError,
        SinkError as SinkError,
        SourceError as SourceError,
        StoreError as StoreError,
    )
    from dumpstream.acl.driver import Driver as Driver
    from dumpstream.acl.library import load_acl as load_acl
    from dumpstream.acl.lifecycle import (
        DumpWarning as DumpWarning,
        Lifecycle as Lifecycle,
        Owner as Owner,
    )
    from dumpstream.acl.pyacl import PyAclSource as PyAclSource, load_pyacl as load_pyacl
    from dumpstream.capture import Capture as Capture, open_capture as open_capture
    from dumpstream.chunk import Batch as Batch, Chunk as Chunk, Loss as Loss
    from dumpstream.chunksource import ChunkSource as ChunkSource
    from dumpstream.codes import AclCode as AclCode
    from dumpstream.comparison.comparison import Comparison as Comparison, compare as compare
    from dumpstream.comparison.summary import Summary as Summary
    from dumpstream.comparison.table import (
        Agreement as Agreement,
        ComparisonRow as ComparisonRow,
        Metrics as Metrics,
        Role as Role,
        Worst as Worst,
    )
    from dumpstream.diagnosis.alerts import Alert as Alert, Alerts as Alerts
    from dumpstream.diagnosis.answer import diagnose as diagnose
    from dumpstream.diagnosis.badness import Badness as Badness
    from dumpstream.diagnosis.report import Diagnosis as Diagnosis
    from dumpstream.format.header import Tensor as Tensor
    from dumpstream.format.layouts import to_layout as to_layout
    from dumpstream.format.opname import OpName as OpName, parse_name as parse_name
    from dumpstream.format.verdict import Verdict as Verdict
    from dumpstream.outside.agent import (
        Attachment as Attachment,
        agent_library as agent_library,
        attach as attach,
        step as step,
        target_environment as target_environment,
    )
    from dumpstream.outside.collector import Collector as Collector, open_collector as open_collector
    from dumpstream.outside.process import CapturedProcess as CapturedProcess
    from dumpstream.outside.recovery import recover as recover
    from dumpstream.profiling import (
        AicoreMetric as AicoreMetric,
        Collect as Collect,
        Profile as Profile,
        Profiler as Profiler,
        ProfileSettings as ProfileSettings,
        ProfilingWarning as ProfilingWarning,
        Subscriber as Subscriber,
        open_profile as open_profile,
    )
    from dumpstream.reading.dumpfile import DumpFile as DumpFile
    from dumpstream.reading.stored import StoredCapture as StoredCapture
    from dumpstream.reassemble import (
        AssembledFile as AssembledFile,
        Reassembler as Reassembler,
        ReassemblyOptions as ReassemblyOptions,
        assemble as assemble,
    )
    from dumpstream.sinks import (
        Sink as Sink,
        SinkFile as SinkFile,
        SinkSettings as SinkSettings,
        Stored as Stored,
        WholeFile as WholeFile,
        load_sink as load_sink,
    )
    from dumpstream.source import (
        OnFull as OnFull,
        RingOptions as RingOptions,
        RingSource as RingSource,
        Source as Source,
    )
    from dumpstream.stages.events import (
        End as End,
        Event as Event,
        Held as Held,
        Hold as Hold,
        Part as Part,
        Piece as Piece,
        Recall as Recall,
        Whole as Whole,
    )
    from dumpstream.stages.feed import Files as Files
    from dumpstream.stages.finished import FilePiece as FilePiece, FinishedFile as FinishedFile
    from dumpstream.stages.notices import OnSlow as OnSlow
    from dumpstream.stages.options import CaptureOptions as CaptureOptions
    from dumpstream.stages.report import LossCount as LossCount, Report as Report
    from dumpstream.statistics.running import tensor_statistics as tensor_statistics
    from dumpstream.statistics.table import TensorRow as TensorRow, TensorStatistics as TensorStatistics
    from dumpstream.system.durable import Fsync as Fsync
    from dumpstream.system.location import Prefix as Prefix
    from dumpstream.view.notebook import OpenRun as OpenRun, RunFile as RunFile, open_run as open_run

#: The public names, by the module that has them. Each module is loaded when one of its names is first used.
_NAMES = {
    "_errors": (
        "AclError",
        "CaptureCancelledError",
        "CaptureInUseError",
        "CollectorError",
        "CompanionError",
        "ConfigError",
        "CutOffError",
        "DestinationError",
        "DestinationInUseError",
        "DumpFormatError",
        "DumpstreamError",
        "FileRefusedError",
        "LibraryNotFoundError",
        "NotACaptureError",
        "ObjectMissingError",
        "OrderError",
        "PartError",
        "ProfilingError",
        "ProfilingInUseError",
        "RingError",
        "SinkError",
        "SourceError",
        "StoreError",
    ),
    "acl.driver": ("Driver",),
    "acl.library": ("load_acl",),
    "acl.lifecycle": ("DumpWarning", "Lifecycle", "Owner"),
    "acl.pyacl": ("PyAclSource", "load_pyacl"),
    "capture": ("Capture", "open_capture"),
    "chunk": ("Batch", "Chunk", "Loss"),
    "chunksource": ("ChunkSource",),
    "codes": ("AclCode",),
    "comparison.comparison": ("Comparison", "compare"),
    "comparison.summary": ("Summary",),
    "comparison.table": ("Agreement", "ComparisonRow", "Metrics", "Role", "Worst"),
    "diagnosis.alerts": ("Alert", "Alerts"),
    "diagnosis.answer": ("diagnose",),
    "diagnosis.badness": ("Badness",),
    "diagnosis.report": ("Diagnosis",),
    "format.header": ("Tensor",),
    "format.layouts": ("to_layout",),
    "format.opname": ("OpName", "parse_name"),
    "format.verdict": ("Verdict",),
    "outside.agent": ("Attachment", "agent_library", "attach", "step", "target_environment"),
    "outside.collector": ("Collector", "open_collector"),
    "outside.process": ("CapturedProcess",),
    "outside.recovery": ("recover",),
    "profiling": (
        "AicoreMetric",
        "Collect",
        "Profile",
        "Profiler",
        "ProfileSettings",
        "ProfilingWarning",
        "Subscriber",
        "open_profile",
    ),
    "reading.dumpfile": ("DumpFile",),
    "reading.stored": ("StoredCapture",),
    "reassemble": ("AssembledFile", "Reassembler", "ReassemblyOptions", "assemble"),
    "sinks": ("Sink", "SinkFile", "SinkSettings", "Stored", "WholeFile", "load_sink"),
    "source": ("OnFull", "RingOptions", "RingSource", "Source"),
    "stages.events": ("End", "Event", "Held", "Hold", "Part", "Piece", "Recall", "Whole"),
    "stages.feed": ("Files",),
    "stages.finished": ("FilePiece", "FinishedFile"),
    "stages.notices": ("OnSlow",),
    "stages.options": ("CaptureOptions",),
    "stages.report": ("LossCount", "Report"),
    "statistics.running": ("tensor_statistics",),
    "statistics.table": ("TensorRow", "TensorStatistics"),
    "system.durable": ("Fsync",),
    "system.location": ("Prefix",),
    "view.notebook": ("OpenRun", "RunFile", "open_run"),
}

_MODULES = dict(sorted((name, f"dumpstream.{module}") for module, names in _NAMES.items() for name in names))

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """Return the public *name*, from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'dumpstream' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return also the public names that are not loaded yet."""
    return sorted({*globals(), *__all__})
