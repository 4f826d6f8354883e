"""A process that joined a collector: who it is, what has come from it, and what became of it."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio

from dumpstream._errors import AclError
from dumpstream.codes import AclCode
from dumpstream.manifest import Process
from dumpstream.outside.sharedsource import SharedSource
from dumpstream.outside.watching import ending_text
from dumpstream.report import Report
from dumpstream.rows import timestamp

if TYPE_CHECKING:
    from dumpstream.capture import Capture
    from dumpstream.outside.connection import Connection
    from dumpstream.outside.shares import Share
    from dumpstream.outside.watching import WatchedProcess
    from dumpstream.outside.wire import Hello, Message

_LONGEST_CALL = 64
_STILL_RUNNING = "still running when its capture ended"
_REPLACED = "replaced by another program"


class CapturedProcess:
    """A process on a collector's list, captured or refused."""

    def __init__(self, record: Process) -> None:
        self.record = record  #: as the manifest has it, once it does
        self.capture: Capture | None = None  #: while it runs
        self._report = Report(seconds=0)
        self._failed = False

    @property
    def report(self) -> Report:
        """What has come from it."""
        return self._report if self.capture is None else self.capture.report

    @property
    def whole(self) -> bool:
        """Whether it was captured as it should have been, and everything is whole and where it belongs."""
        return not self._failed and self.report.whole and not self.report.waiting

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        record = asdict(self.record)
        del record["ring"]
        return {**record, "whole": self.whole, "report": self.report.as_dict()}

    def finish(self) -> None:
        """Keep no more of its capture, which is over, than what came of it: a collector may run for long."""
        self._report, self.capture = self.report, None

    def fail(self, problem: str) -> None:
        """Write down why it was not captured as it should have been; the first reason stays."""
        self.record.problem = self.record.problem if self._failed else problem
        self._failed = True

    def note(self, text: str) -> None:
        """Write down what is worth knowing though nothing failed."""
        self.record.problem = self.record.problem or text


def introduced(pid: int, hello: Hello) -> Process:
    """Return what is known of a process as soon as it has said who it is."""
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

    *configured* if it is to apply a dump configuration.
    """

    def __init__(
        self, process: CapturedProcess, connection: Connection, share: Share, *, configured: bool
    ) -> None:
        self.process, self.connection, self.share = process, connection, share
        self._configured = configured
        self.source = SharedSource(share.ring)
        self.over = anyio.Event()  #: nothing more will come, or nothing more is wanted
        self.gone = anyio.Event()  #: the process has ended, or is no longer waited for
        self.stored = anyio.Event()  #: what came is in its files
        self._replaced = False

    def hear(self, message: Message) -> None:
        """Take a message of its agent."""
        if message.kind == "wake":
            self.source.wake()
        elif message.kind == "bye":
            self.leave()
        elif message.kind == "acl":
            self._hear_of_call(message)
        elif message.kind == "driven" and self._configured:
            self.process.note(f"it drives the dump itself ({_call(message)}), so --config was not applied")

    def hang_up(self) -> None:
        """Expect no more messages; the process may go on without them."""
        self.source.hear_nothing()

    def leave(self) -> None:
        """Expect nothing more in the ring."""
        self.source.producer_ended()
        self.over.set()

    def end(self) -> None:
        """The process has ended: take what it still said, and what it left in the ring."""
        self.connection.read()
        self.leave()
        self.gone.set()

    def replace(self) -> None:
        """The process lives on as another program, which has joined anew."""
        self._replaced = True
        self.leave()
        self.gone.set()

    def dismiss(self) -> None:
        """Take nothing more from the process, and do not wait for its end."""
        self.over.set()
        self.gone.set()

    async def ending(self, watched: WatchedProcess) -> str:
        """Return in words how the process ended, once it is `gone`."""
        if self._replaced:
            return _REPLACED
        return _STILL_RUNNING if watched.alive else ending_text(await watched.status())

    def _hear_of_call(self, message: Message) -> None:
        code = _code(message)
        if code not in (0, AclCode.REPEAT_INITIALIZE):  # somebody else had begun, which is no failure
            self.process.fail(str(AclError(_call(message), code)))


def _call(message: Message) -> str:
    name = message.text("call")[:_LONGEST_CALL]
    return name if name.isidentifier() else "an ACL function"


def _code(message: Message) -> int:
    text = message.text("code")
    return int(text) if re.fullmatch(r"-?\d{1,10}", text, re.ASCII) else 0
