"""Alerts of a capture, on standard error and to a command."""

from __future__ import annotations

import json
import subprocess
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from dataclasses import asdict

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.capture import Capture
from dumpstream.cli._display import say
from dumpstream.diagnosis.alerts import Alert
from dumpstream.outside.collector import Collector
from dumpstream.outside.process import CapturedProcess

_LOOK_S = 0.1
#: How many alerts of one process are told.
_MOST = 10
_LONGEST_S = 30


def add_alert_arguments(parser: ArgumentParser) -> None:
    """Declare ``--alert`` and ``--on-alert``."""
    add = parser.add_argument
    add("--alert", action="store_true", help="say at once which operator made the first NaN or infinity")
    add("--on-alert", metavar="COMMAND", help="run this in a shell for each alert, with its JSON as input")


def wants_alerts(args: Namespace) -> bool:
    """Whether the flags ask for alerts."""
    return bool(args.alert or args.on_alert)


async def tell_alerts(capture: Capture, command: str | None, label: str | None = None) -> None:
    """Say what is bad in *capture* until it ends."""
    told = 0
    with suppress(DumpstreamError):  # the capture says itself why it ended
        async for alert in capture.alerts():
            told += 1
            if told <= _MOST:
                say(f"alert: {alert.sentence}" if label is None else f"alert: {label}: {alert.sentence}")
                if command is not None:
                    await _run(command, alert, label)


async def tell_alerts_of_processes(collector: Collector, command: str | None, tasks: TaskGroup) -> None:
    """Say what is bad in the captures of all processes of *collector*."""
    seen: set[CapturedProcess] = set()
    while True:
        for process in collector.processes:
            if process not in seen and process.capture is not None:
                seen.add(process)
                tasks.start_soon(tell_alerts, process.capture, command, process.label)
        await anyio.sleep(_LOOK_S)


async def _run(command: str, alert: Alert, label: str | None) -> None:
    told = {"process": label, "file": alert.file, "sentence": alert.sentence, **asdict(alert.origin)}
    # In a thread: a command that does not read its input must not break anything.
    code = await run_sync(_run_shell, command, json.dumps(told).encode(), abandon_on_cancel=True)
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
    return done.returncode
