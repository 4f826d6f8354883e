"""Problems: why not everything of a capture is whole. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from dumpstream.archive.manifest import Process
from dumpstream.archive.place import WritingProcess
from dumpstream.archive.rows import JOURNAL, FileRow, Outcome
from dumpstream.format.verdict import Verdict
from dumpstream.reading.collection import Member
from dumpstream.reading.stored import StoredCapture
from dumpstream.remote.outboxes import upload_command
from dumpstream.system.location import Prefix

_MEANING = {
    Verdict.LOST: "bytes of it were lost",
    Verdict.GAP: "ranges of it never came; `extract --sparse` places what is behind them",
    Verdict.OVERLAP: "a range of it came twice, with different bytes; the first are kept",
    Verdict.NEVER_CLOSED: "its last chunk never came, and its header does not vouch for its length",
    Verdict.SHORT: "it has fewer bytes than its header promises",
    Verdict.LONG: "it has more bytes than its header promises",
}


class Kind(StrEnum):
    """What is wrong."""

    RUNNING = "running"  #: the capture is not finished
    INTERRUPTED = "interrupted"  #: the journal has no end
    WAITING = "waiting"  #: what is missing waits here to be uploaded
    REFUSED = "refused"  #: a process was not captured
    DIED = "died"  #: a process was killed, or gone before it had said goodbye
    FAILED = "failed"  #: a run ended early
    JOURNAL = "journal"  #: lines cannot be read
    LOSS = "loss"  #: chunks were lost
    VERDICT = "verdict"  #: a file is not whole
    MISSING = "missing"  #: a stored file is not there
    DAMAGED = "damaged"  #: a stored file is not what was stored
    EXTRA = "extra"  #: a file is not in the journal
    UNREACHABLE = "unreachable"  #: an object store refuses or does not answer, so nothing is known


class Problem(NamedTuple):
    """One reason why not everything is whole."""

    kind: Kind
    subject: str  #: the name of a file, or a path in the capture
    detail: str

    @property
    def text(self) -> str:
        return f"{self.subject}: {self.detail}"

    def below(self, prefix: str) -> Problem:
        """Return it as a problem of one of several captures."""
        return self._replace(subject=prefix + self.subject)


def problem_of_member(member: Member) -> Problem:
    """Return why *member* has no capture."""
    refused = member.process is not None and not member.process.directory
    kind = Kind.REFUSED if refused else Kind.INTERRUPTED
    return Problem(kind, member.label, member.problem or "has no capture")


def problems_of_list(member: Member) -> Iterator[Problem]:
    """Yield why *member* may have files that are not on its list of files."""
    if member.capture is not None:
        yield from _unreadable_lines(member.capture, member.prefix)
    elif not member.beginning and (member.process is None or member.process.directory):
        yield problem_of_member(member)


def problem_of_row(row: FileRow) -> Problem:
    """Return why the file of *row* is not whole."""
    detail = f"{row.verdict}: {_MEANING[row.verdict]}"
    if row.lost_bytes:
        detail += f"; {row.lost_bytes} bytes"
    if row.cause is not None:
        detail += f" ({row.cause})"
    return Problem(Kind.VERDICT, row.name, detail)


def still_running(subject: str, writer: WritingProcess) -> Problem:
    """Return the problem that *writer* has not finished."""
    return Problem(Kind.RUNNING, subject, f"{writer} is still capturing; verify again when it ends")


def _unreadable_lines(capture: StoredCapture, prefix: str) -> Iterator[Problem]:
    if capture.unreadable_lines:
        count, first = len(capture.unreadable_lines), capture.unreadable_lines[0]
        detail = f"{count} unreadable lines, the first is line {first}; restore a copy"
        yield Problem(Kind.JOURNAL, prefix + JOURNAL, detail)


def _death(subject: str, process: Process | None, *, said_goodbye: bool) -> Problem:
    ended = "its process was gone" if process is None else f"process {process.pid}: {process.ending}"
    how = ended if said_goodbye else f"{ended}, without aclFinalize"
    return Problem(Kind.DIED, subject, f"{how}; what it had not dumped by then is not there")


def waiting_at(location: Path | Prefix, directory: Path) -> Problem:
    """Return the problem that something of the capture at *location* waits in *directory*."""
    detail = f"not everything is in its store yet; upload the rest with: {upload_command(directory)}"
    return Problem(Kind.WAITING, str(location), detail)


def problems_of_capture(
    capture: StoredCapture, prefix: str, *, process: Process | None = None, waiting: Problem | None = None
) -> Iterator[Problem]:
    """Yield what the manifest and the journal of *capture* say is wrong; *prefix* is that of its names.

    If it is one of several, *process* is its own. If something of it is *waiting*, that explains why a run
    has no end.
    """
    subject = str(capture.path)
    if capture.writer is not None:
        yield still_running(subject, capture.writer)
    if waiting is not None:
        yield waiting
    elif capture.interrupted:
        detail = "a run was stopped before its end; what it had not finished is not there"
        yield Problem(Kind.INTERRUPTED, subject, detail)
    for run, outcome in capture.outcomes.items():
        if outcome not in {None, Outcome.FINISHED}:
            detail = f"run {run} ended early ({outcome}); what came later is not there"
            yield Problem(Kind.FAILED, subject, detail)
    if capture.totals.died or (process is not None and process.killed):
        yield _death(subject, process, said_goodbye=not capture.totals.died)
    yield from _unreadable_lines(capture, prefix)
    for loss in capture.losses:
        lost = f"chunks lost: {loss.chunks}, of {loss.bytes} bytes"
        yield Problem(Kind.LOSS, prefix + loss.cause, f"{lost}; files known to miss some are marked lost")
