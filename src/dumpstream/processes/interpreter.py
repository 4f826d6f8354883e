"""Interpreter: a Python process of our own, started by exec, that runs one module of this package."""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.to_thread import run_sync

from dumpstream.processes.channel import Channel
from dumpstream.processes.liveness import ProcessHandle, ending_text

#: A service manager, or a scheduler, sends them to every process of a job; the program is to answer them.
_FOR_THE_PROGRAM = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: Python ignores these, and the other process would inherit that; a service may ignore more.
_DEFAULT_SIGNALS = sorted({*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP})


class Interpreter:
    """A Python process of our own, and the channel to it."""

    def __init__(self, process: ProcessHandle, channel: Channel) -> None:
        self.channel = channel
        self.pid = process.pid
        self._process = process
        self._ended = anyio.Event()
        process.when_ended(self._ended.set)

    async def ending(self) -> str:
        """Return in words how it ended, once it has."""
        await self._ended.wait()
        return ending_text(await self._process.status())

    async def aclose(self) -> None:
        """Hang up, and wait for its end."""
        with anyio.CancelScope(shield=True):
            self.channel.close()
            await self._ended.wait()
            self._process.close()
            with suppress(ChildProcessError):  # the program has taken it with a wait for any child
                await run_sync(os.waitpid, self.pid, 0)


@asynccontextmanager
async def started(module: str) -> AsyncIterator[Interpreter]:
    """Run *module* in a process of its own, which reads its messages from standard input.

    It is in a session of its own: the signals of a terminal, or to a process group, do not reach it, and
    those that ask a process to end do not end it.

    Raises:
        OSError: it cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid = await run_sync(_start, module, theirs)
            interpreter = Interpreter(ProcessHandle(pid), Channel(ours))
        except BaseException:
            ours.close()
            raise
    try:
        yield interpreter
    finally:
        await interpreter.aclose()


def _start(module: str, channel: socket.socket) -> int:
    # Never in the current directory: a file there could take the place of a module.
    words = [sys.executable, "-P", "-m", module]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, channel.fileno(), 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    if not _is_passed_on(2):
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
    return os.posix_spawn(
        sys.executable,
        words,
        os.environ | {"PYTHONPATH": os.pathsep.join(_paths())},
        file_actions=actions,
        setsid=True,
        setsigmask=_FOR_THE_PROGRAM,
        setsigdef=_DEFAULT_SIGNALS,
    )


def _paths() -> list[str]:
    """Return where the program finds modules, Python's own before a file of the program with such a name."""
    library = os.path.dirname(os.__file__)  # noqa: PTH120 - compared with texts
    own = {library, f"{library}/lib-dynload"}
    # Like Python, pass over what is no text; a colon would be the end of the path.
    paths = [path for path in sys.path if isinstance(path, str) and path and os.pathsep not in path]
    return sorted(paths, key=lambda path: path not in own)


def _is_passed_on(descriptor: int) -> bool:
    """Return whether a process that is started here gets *descriptor*."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False
