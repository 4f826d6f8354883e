"""What Ctrl-C and SIGTERM do to a command without an event loop, even if a store does not answer."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread, current_thread, main_thread

from dumpstream.cli._exit import BY_SIGNAL
from dumpstream.cli.screen.live import leave_terminal

#: The exit codes of commands that a signal has ended.
ENDED = frozenset({BY_SIGNAL + signal.SIGINT, BY_SIGNAL + signal.SIGTERM})

_CLEANUP_S = 4.0


class _Terminated(KeyboardInterrupt):
    """SIGTERM has come; like Ctrl-C, it lets everything clean up."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a command that *interrupt* has ended."""
    return BY_SIGNAL + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Have Ctrl-C raise `KeyboardInterrupt` inside the block if it would end the process."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def ending_soon() -> Iterator[None]:
    """Have Ctrl-C end the process within a few seconds, and a second one at once, whatever the block does.

    So does SIGTERM. Python raises `KeyboardInterrupt` only between two steps of its own, and exits only when
    its threads have ended. The block has these seconds to clean up.
    """
    if current_thread() is not main_thread():  # only the main thread gets signals
        yield
        return
    signals, signalled = socket.socketpair()
    signalled.setblocking(False)
    terminates = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with signalled:
        Thread(target=_watch, args=(signals,), name="interrupt", daemon=True).start()
        before = signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        try:
            if terminates:
                signal.signal(signal.SIGTERM, _terminate)
            yield
        finally:
            if terminates:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(before)


def _terminate(*_: object) -> None:
    raise _Terminated


def _watch(signals: socket.socket) -> None:
    """End the process if it runs on for too long after a signal; *signals* ends with the block."""
    with signals:
        number = _next_end(signals)
        if not number:
            return
        signals.settimeout(_CLEANUP_S)
        with suppress(TimeoutError):
            if not _next_end(signals):
                return
        leave_terminal()
        os._exit(BY_SIGNAL + number)


def _next_end(signals: socket.socket) -> int:
    """Return the next signal that ends the process, once it comes; 0 if the block has ended."""
    while number := signals.recv(1):
        if number[0] in {signal.SIGINT, signal.SIGTERM}:
            return number[0]
    return 0
