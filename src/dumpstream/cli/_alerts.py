"""Alerts of a capture, on standard error and to a command."""

from __future__ import annotations

import json
import subprocess
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.capture import Capture
from dumpstream.cli._display import count_text, say
from dumpstream.outside.process import CapturedProcess

if TYPE_CHECKING:  # it loads numpy and pydantic, and most captures have no alerts
    from dumpstream.diagnosis.alerts import Alert

#: How long a command may take, and all that wait when the captures have ended.
_LONGEST_S = 30


def add_alert_arguments(parser: ArgumentParser) -> None:
    """Declare ``--alert`` and ``--on-alert``."""
    add = parser.add_argument
    add("--alert", action="store_true", help="say at once which operator made the first NaN or infinity")
    add("--on-alert", metavar="COMMAND", help="run this in a shell for each alert, with its JSON as input")


def wants_alerts(args: Namespace) -> bool:
    """Whether the flags ask for alerts."""
    return bool(args.alert or args.on_alert)


class AlertTeller:
    """Says what is bad in captures, in *tasks*, and gives it to *command*, if there is one."""

    def __init__(self, tasks: TaskGroup, command: str | None) -> None:
        self._tasks, self._command = tasks, command
        self._telling: set[anyio.Event] = set()
        self._is_late = False  # whether no further command is started

    def tell(self, capture: Capture, process: CapturedProcess | None = None) -> None:
        """Say what is bad in *capture*, which may be that of a *process*, from now on."""
        self._telling.add(ended := anyio.Event())
        self._tasks.start_soon(self._tell, capture, process, ended)

    def tell_process(self, process: CapturedProcess, capture: Capture) -> None:
        """Say what is bad in *capture*, which is that of *process*, from now on."""
        self.tell(capture, process)

    async def finish(self) -> None:
        """Return when everything is said about captures, which have ended; commands then have 30 seconds."""
        with anyio.move_on_after(_LONGEST_S):
            await self._finished()
        self._is_late = True
        await self._finished()

    async def _finished(self) -> None:
        for ended in [*self._telling]:
            await ended.wait()

    async def _tell(self, capture: Capture, process: CapturedProcess | None, ended: anyio.Event) -> None:
        left_out, whose = 0, "" if process is None else f"{process.label}: "
        try:
            async for alert in capture.alerts():
                word = "alert, corrected" if alert.corrects else "alert"
                say(f"{word}: {whose}{alert.sentence}")
                if self._command is not None and not self._is_late:
                    await _run(self._command, alert, process)
                elif self._command is not None:
                    left_out += 1
        except DumpstreamError:
            pass  # the capture says itself why it ended
        finally:
            ended.set()
            self._telling.discard(ended)
            if left_out:
                say(f"--on-alert was not run for the last {count_text(left_out, 'alert')}: it takes too long")


async def _run(command: str, alert: Alert, process: CapturedProcess | None) -> None:
    label, rank = (None, None) if process is None else (process.label, process.record.rank)
    told = {"process": label, "file": alert.file, "sentence": alert.sentence, "corrects": alert.corrects}
    told |= asdict(alert.origin) | {"rank": rank}
    # In a thread: a command that does not read its input must not break anything.
    code = await run_sync(_run_shell, command, f"{json.dumps(told)}\n".encode(), abandon_on_cancel=True)
    if code:
        say(f"--on-alert ended with exit code {code}")


def _run_shell(command: str, data: bytes) -> int | str:
    try:
        done = subprocess.run(  # noqa: S602 - the user wrote it
            command,
            shell=True,
            input=data,
            stdout=subprocess.DEVNULL,  # the standard output of a capture is that of what it captures
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"none after {_LONGEST_S} seconds, and was killed"
    except OSError as exc:  # the system has no process left, for example
        return f"none, because no shell could be started: {exc.strerror}"
    return done.returncode
