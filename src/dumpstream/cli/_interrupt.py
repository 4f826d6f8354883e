"""What Ctrl-C does to a command that does not run an event loop, even if a store does not answer."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread, current_thread, main_thread

from dumpstream.cli._exit import BY_SIGNAL

#: The exit code of a command that Ctrl-C has ended.
INTERRUPTED = BY_SIGNAL + signal.SIGINT

_CLEANUP_S = 4.0


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

    Python raises `KeyboardInterrupt` only between two steps of its own, and exits only when its threads have
    ended. The block has these seconds to clean up.
    """
    if current_thread() is not main_thread():  # only the main thread gets signals
        yield
        return
    signals, signalled = socket.socketpair()
    signalled.setblocking(False)
    with signalled:
        Thread(target=_watch, args=(signals,), name="interrupt", daemon=True).start()
        before = signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)


def _watch(signals: socket.socket) -> None:
    """End the process if it runs on for too long after a signal; *signals* ends with the block."""
    with signals:
        if not signals.recv(1):
            return
        signals.settimeout(_CLEANUP_S)
        with suppress(TimeoutError):
            if not signals.recv(1):
                return
        os._exit(INTERRUPTED)
