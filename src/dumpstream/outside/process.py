"""A process that joined a collector: what it is, what has come from it, and how it ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import AclError
from dumpstream.archive.excerpt import excerpt
from dumpstream.archive.manifest import FIGURES, Configured, Process
from dumpstream.archive.rows import timestamp
from dumpstream.capture import Capture
from dumpstream.codes import AclCode
from dumpstream.outside.configurations import Configurations
from dumpstream.outside.connection import Connection
from dumpstream.outside.shares import Share
from dumpstream.outside.wire import Hello, Message, call_of, parse_config_part
from dumpstream.processes import PROCESS_GONE
from dumpstream.processes.liveness import ProcessHandle, ending_text
from dumpstream.sharedsource import SharedSource
from dumpstream.stages.report import Report

if TYPE_CHECKING:
    from dumpstream.config import AclConfig

_log = logging.getLogger(__name__)

#: Bytes that the manifest has for the problem of a process.
_LONGEST_PROBLEM = 1 << 10
#: Reads of a connection after which a process that has ended has nothing more in it.
_LAST_READS = 64
_STILL_RUNNING = "still running when its capture ended"
_REPLACED = "replaced by another program"
_REJOINED = "left, and joined again"


class CapturedProcess:
    """A process on a collector's list, captured or refused."""

    def __init__(self, record: Process) -> None:
        self.record = record  #: its record in the manifest
        self.capture: Capture | None = None  #: while it runs
        self._report = Report(seconds=0)
        self._failed = False

    @property
    def report(self) -> Report:
        """The report of its capture."""
        return self._report if self.capture is None else self.capture.report

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.record.directory or f"process {self.record.pid}"

    @property
    def failure(self) -> str | None:
        """Why it is not captured as it should be, known as soon as that is so; None if it is."""
        error = None if self.capture is None else self.capture.error
        if error is not None:
            return str(error)
        return self.record.problem if self._failed else self._report.failure

    @property
    def died(self) -> bool:
        """Whether it was killed, or gone before its agent had said goodbye."""
        return self.record.killed or self.report.cut_off == PROCESS_GONE

    @property
    def whole(self) -> bool:
        """Whether it was captured as it should have been, did not die, and all is in its destination."""
        return not (self._failed or self.died) and self.report.whole and not self.report.waiting

    def as_dict(self) -> dict[str, Any]:
        """Return its record and its report as values for JSON."""
        record = asdict(self.record)
        for name in ("ring", *FIGURES):
            del record[name]
        return {**record, "whole": self.whole, "report": self.report.as_dict()}

    def finish(self) -> None:
        """Keep only the report of its capture, which is over."""
        self._report, self.capture = self.report, None
        record, report = self.record, self._report
        record.files, record.bytes, record.stored_bytes = report.files, report.bytes, report.stored_bytes
        record.verdicts = dict(report.verdicts)
        record.lost_chunks = sum(loss.chunks for loss in report.losses.values())

    def fail(self, problem: str, *, logged: bool = True) -> None:
        """Record, and log, why it is not captured as it should be; the first reason stays."""
        self.note(problem)
        if logged and not self._failed:
            _log.error("%s is not captured as it should be: %s", self.label, self.record.problem)
        self._failed = True

    def note(self, text: str | None) -> None:
        """Record what the user should know although nothing failed; it replaces an earlier note."""
        if not self._failed:
            self.record.problem = None if text is None else excerpt(text, _LONGEST_PROBLEM)


def introduced(pid: int, hello: Hello) -> Process:
    """Return the record of a process that has introduced itself."""
    return Process(
        directory="",
        pid=pid,
        parent=hello.parent,
        command=list(hello.command),
        rank=hello.rank,
        device=hello.device,
        started=timestamp(),
    )


class Follower:
    """Follows one process through its *connection* and its *share* of the rings.

    The process has *environment*; the collector may have *asked* it to apply a dump configuration.
    """

    def __init__(
        self,
        process: CapturedProcess,
        connection: Connection,
        share: Share,
        *,
        environment: Mapping[str, str],
        asked: AclConfig | None,
    ) -> None:
        self.process, self.connection, self.share = process, connection, share
        self._asked = asked
        self._configurations = Configurations(environment)
        self._driven: str | None = None  # the ACL call by which it began to drive the dump itself
        self._empty: set[str] = set()  # configurations that dump nothing, as was logged
        self._news = anyio.Event()
        self.source = SharedSource(share.ring)
        self.over = anyio.Event()  #: nothing more will come, or the collector wants no more
        self.gone = anyio.Event()  #: the process has ended, or the collector no longer waits for it
        self.stored = anyio.Event()  #: everything that came is stored
        self.handle: ProcessHandle | None = None  #: the process, as long as it is followed
        self._ending: str | None = None  # if the collector does not wait for the end of the process

    def hear(self, message: Message) -> None:
        """Take a message from its agent."""
        if message.kind == "wake":
            self.source.wake()
        elif message.kind == "bye":
            self._configurations.hear_of_losses(message.number("lost_configurations") or 0)
            self.leave(in_order=True)
        elif message.kind == "acl":
            self._hear_of_call(message)
        elif message.kind == "driven" and self._driven is None:
            self._driven = call_of(message)
            self.process.note(self._difference(self._configurations.told))
        elif message.kind == "config" and self._configurations.hear(parse_config_part(message)):
            self._news.set()

    async def attend(self, capture: Capture) -> None:
        """Let *capture* record what the process says of its configurations, until it is `over`."""
        while True:
            over, self._news = self.over.is_set(), anyio.Event()
            if self._configurations.unread:
                await run_sync(self._configurations.read)
            if told := self._configurations.told:
                self.process.note(await run_sync(self._difference, told))
                await run_sync(self._log_emptiness, told)
                await capture.configure(told)
            if over:
                return
            await self._news.wait()

    def leave(self, *, in_order: bool = False, why: str = PROCESS_GONE) -> None:
        """Expect nothing more in the ring, because the process has left *in_order*, or was cut off."""
        self.source.producer_ended(in_order=in_order, why=why)
        self._configurations.hear_no_more()
        self._end_attendance()

    def end(self) -> None:
        """Take what the process, which has ended, has left in its connection and its ring."""
        for _ in range(_LAST_READS):
            if not self.connection.read():
                break
        self.leave()
        self.gone.set()

    def replace(self) -> None:
        """Take it that the process lives on as another program, which has joined again."""
        self._ending = _REPLACED
        self.leave(why="process_replaced")
        self.gone.set()

    def rejoin(self) -> None:
        """Do not wait for the end of the process, which has left and joins again: it may do so for ever."""
        if not self.gone.is_set():
            self._ending = _REJOINED
            self.gone.set()

    def dismiss(self) -> None:
        """Take nothing more from the process, and do not wait for its end."""
        self._end_attendance()
        self.gone.set()

    async def ending(self, handle: ProcessHandle) -> str:
        """Return in words how the process ended, once it is `gone`."""
        if self._ending is not None:
            return self._ending
        return _STILL_RUNNING if handle.alive else ending_text(await handle.status())

    def _end_attendance(self) -> None:
        self.over.set()
        self._news.set()

    def _hear_of_call(self, message: Message) -> None:
        text = message.text("code")
        code = int(text) if re.fullmatch(r"-?\d{1,10}", text, re.ASCII) else 0
        if code not in (0, AclCode.REPEAT_INITIALIZE):  # the program had begun itself
            self.process.fail(str(AclError(call_of(message), code)))

    def _log_emptiness(self, told: Sequence[Configured]) -> None:
        """Log every configuration that the process itself has put in force, and that dumps nothing."""
        from dumpstream.analysis.modes import modes_of  # noqa: PLC0415 - pydantic takes long to load

        for it in told:
            asks = it.by == "program" and it.path not in self._empty and bool((it.config or {}).get("dump"))
            if asks and modes_of([it]) == ():
                self._empty.add(it.path)
                text = "%s: nothing is dumped by %s (%s); `dumpstream config explain` says why"
                _log.warning(text, self.process.label, it.path, it.call)

    def _difference(self, told: Sequence[Configured]) -> str | None:
        """Return what the user must know if the process, as *told*, does not dump what was asked for."""
        if self._asked is None or self._driven is None:
            return None
        others = [it for it in told if it.by == "program" and not _is_same(it, self._asked)]
        if any(it.by == "program" for it in told) and not others:
            return None
        held = "held only until then" if any(it.by == "agent" for it in told) else "was not applied"
        text = f"it drives the dump itself ({self._driven}), so --config {held}"
        return f"{text}; it dumps by {others[-1].path}" if others and others[-1].path else text


def _is_same(configured: Configured, asked: AclConfig) -> bool:
    """Whether both are known to dump the same, except for the directory."""
    if configured.config is None:
        return False
    one, other = ({**it.get("dump", {}), "dump_path": None} for it in (configured.config, asked.as_dict()))
    return one == other
