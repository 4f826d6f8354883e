"""Every exception dumpstream raises.

DumpstreamError
  AclError
  CaptureCancelledError
  CaptureInUseError
  CollectorError
  CompanionError
  ConfigError
  CutOffError
  DestinationError
    DestinationInUseError
  DumpFormatError
  LibraryNotFoundError
  NotACaptureError
  OrderError
  PartError
  ProfilingError
    ProfilingInUseError
  RingError
  SinkError
    FileRefusedError
  SourceError
  StoreError
    ObjectMissingError
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dumpstream.codes import describe_code


class DumpstreamError(Exception):
    """The base of all errors; the message is one line and has the remedy. Can be sent to other processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[DumpstreamError], args: tuple[Any, ...], values: dict[str, Any]) -> DumpstreamError:
    """Return an error as it was, whatever its constructor takes."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class AclError(DumpstreamError):
    """An ACL function returned an error code."""

    def __init__(self, function: str, code: int) -> None:
        self.function, self.code = function, code
        self.name, self.meaning, self.remedy = describe_code(code)
        super().__init__(f"{function} returned {code} ({self.name}): {self.meaning}; {self.remedy}")


class LibraryNotFoundError(DumpstreamError):
    """No library with the ACL dump functions could be loaded."""

    def __init__(self, tried: Sequence[str]) -> None:
        super().__init__(
            f"no ACL dump library found; tried {'; '.join(tried)}. Source CANN's set_env.sh, "
            "or name the library with --acl-lib, acl_library= or DUMPSTREAM_ACL_LIBRARY"
        )
        self.tried = tuple(tried)


class CaptureCancelledError(DumpstreamError):
    """The capture whose files are awaited was cancelled."""

    def __init__(self) -> None:
        super().__init__(
            "the capture was cancelled, and what was not finished is lost; leave the open_capture block "
            "without a cancellation to get every file"
        )


class CaptureInUseError(DumpstreamError):
    """This process is already capturing; the ACL callback serves one capture at a time."""

    def __init__(self) -> None:
        super().__init__(
            "a capture is already running in this process; the ACL callback serves one at a time: "
            "leave the first open_capture block before entering another"
        )


class CollectorError(DumpstreamError):
    """A collector cannot listen, or a process cannot join one."""


class CompanionError(DumpstreamError):
    """The process that stores a capture did not start, or ended before its program left the capture."""

    def __init__(self, ending: str, *, started: bool = True) -> None:
        super().__init__(
            f"the process that stored the capture ended early ({ending}); what it had not stored is lost: "
            "`dumpstream verify` says what is there, and own_process=False stores in the program itself"
            if started
            else f"the process that is to store the capture cannot be started ({ending}); "
            "own_process=False stores in the program itself"
        )
        self.ending = ending


class CutOffError(DumpstreamError):
    """A program ended, or let go of its capture, without leaving it; what it had dumped is stored."""

    def __init__(self, ending: str) -> None:
        super().__init__(
            f"the program did not leave the capture ({ending}); what it had dumped until then is stored"
        )
        self.ending = ending


class ConfigError(DumpstreamError):
    """CANN would refuse a dump configuration, so it was not used; `problems` has a `config.Problem` each."""

    def __init__(self, path: Path, problems: Sequence[Any]) -> None:
        found = "; ".join(f"{problem.path}: {problem.text}" for problem in problems)
        super().__init__(f"CANN would refuse {path}: {found}")
        self.path, self.problems = path, tuple(problems)


class DestinationError(DumpstreamError):
    """The destination cannot take a capture."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path


class DestinationInUseError(DestinationError):
    """Another capture is writing there."""

    def __init__(
        self, path: object, pid: int, host: str | None = None, *, remedy: str = "choose another destination"
    ) -> None:
        # In a store, a capture that was killed leaves its lock behind.
        where = "" if host is None else f" on {host}"
        wait = "" if host is None else ", or wait two minutes if that process was killed"
        super().__init__(path, f"is being written by process {pid}{where}; {remedy}{wait}")
        self.pid, self.host = pid, host


class DumpFormatError(DumpstreamError):
    """A file is not a dump file, or is damaged."""

    def __init__(self, problem: str, position: int, *, source: str | None = None) -> None:
        name = "" if source is None else f"{source}: "
        super().__init__(f"{name}{problem} (byte {position})")
        self.problem, self.position, self.source = problem, position, source

    @property
    def detail(self) -> str:
        """The message without the name of the file."""
        return f"{self.problem} (byte {self.position})"


class NotACaptureError(DumpstreamError):
    """The directory does not hold a capture, or one that this version cannot read."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path


class OrderError(DumpstreamError):
    """An ACL call was not made, because it would have come in the wrong order."""

    def __init__(self, call: str, problem: str, order: str) -> None:
        super().__init__(f"{call}: {problem}; the order is: {order}")
        self.call, self.problem, self.order = call, problem, order


class PartError(DumpstreamError):
    """A stored part of a file cannot be read back."""

    def __init__(self, path: str, problem: str, *, missing: bool = False) -> None:
        super().__init__(f"{path} {problem}")
        self.path, self.problem, self.missing = path, problem, missing

    @property
    def detail(self) -> str:
        """The message without the name of the file that the part belongs to."""
        return str(self)


class ProfilingError(DumpstreamError):
    """Profiling is not possible with these settings."""


class ProfilingInUseError(ProfilingError):
    """Another process, or this one, is profiling; CANN allows one profile at a time."""

    def __init__(self, pid: int) -> None:
        process = "this process" if pid == os.getpid() else f"process {pid}"
        super().__init__(f"{process} is profiling, and only one can; wait until it has finalised")
        self.pid = pid


class RingError(DumpstreamError):
    """The ring could not be made, or its records are damaged."""


class SinkError(DumpstreamError):
    """A sink could not store what it was given."""


class FileRefusedError(SinkError):
    """A sink refuses one file, which is lost to *cause*, and goes on with the others."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class SourceError(DumpstreamError):
    """A source that is not dumpstream's own has failed."""


class StoreError(DumpstreamError):
    """An object store cannot be used, refuses, or does not answer; *away* if a later attempt may succeed."""

    def __init__(self, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.away = away


class ObjectMissingError(StoreError):
    """The object does not exist."""
