"""Capture a command and everything it starts: ``capture -- COMMAND``."""

import errno
import os
import shutil
from argparse import Namespace

import anyio

from dumpstream._errors import DumpstreamError
from dumpstream.cli._display import count_text, print_error, say
from dumpstream.cli._exit import FAILED
from dumpstream.cli._outside import collect_while, raise_descriptor_limit, report_outside
from dumpstream.cli._signals import CaptureSignals
from dumpstream.outside.agent import target_environment
from dumpstream.outside.collector import Collector
from dumpstream.outside.command import Command
from dumpstream.processes.liveness import exit_code

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_PATIENCE_S = 1.0


async def capture_command(args: Namespace) -> int:
    """Run the command, and return its exit code; 3 if it succeeded and the capture is not whole."""
    run = _Run(args.words)
    try:
        collector = await collect_while(args, run.follow)
    except DumpstreamError as exc:
        if run.code is None:
            raise
        print_error(exc)
        return run.code or FAILED
    finally:
        if run.command is not None and run.code is not None:
            run.command.collect()
    if collector is None or run.command is None:
        return run.code or FAILED
    code = report_outside(collector, args)
    return run.code or code


def refuse_missing(program: str) -> int | None:
    """Say that there is no such program, and return the exit code of a shell; None if there is one.

    Asked before the capture begins, so that the corrected command finds its destination empty.
    """
    if shutil.which(program) is not None:
        return None
    if "/" not in program:
        say(f"{program} cannot be run: no directory in PATH has it; check its name, or give its path")
        return _NOT_FOUND
    is_there = os.path.lexists(program)
    say(f"{program} cannot be run: {os.strerror(errno.EACCES if is_there else errno.ENOENT)}")
    return _NOT_EXECUTABLE if is_there else _NOT_FOUND


class _Run:
    """One run of a command."""

    def __init__(self, words: list[str]) -> None:
        self.code: int | None = None  #: as a shell has it, once the command has ended
        self.command: Command | None = None  #: once it is started
        self._words = words

    async def follow(self, collector: Collector, signals: CaptureSignals) -> None:
        """Start the command, and return when it and every captured process have ended."""
        environment = target_environment(collector.socket_path, os.environ)
        try:
            self.command = signals.command = Command(self._words, environment)
        except OSError as exc:
            say(f"{self._words[0]} cannot be run: {exc.strerror}")
            self.code = _NOT_FOUND if exc.errno == errno.ENOENT else _NOT_EXECUTABLE
            return
        raise_descriptor_limit()  # only now, so that the command does not inherit it
        status = await self.command.wait()
        signals.command = None
        self.code = exit_code(status)
        with anyio.move_on_after(_PATIENCE_S):
            await collector.idle()
        if collector.running:
            still = count_text(collector.running, "process")
            say(f"the command has ended; waiting for {still} that it started; Ctrl-C ends the capture")
        await collector.idle()
