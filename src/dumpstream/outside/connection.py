"""Connection: the socket at which agents reach a collector, and one peer of it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

from dumpstream._errors import CollectorError
from dumpstream.archive.destination import make_directory
from dumpstream.outside.wire import MAX_MESSAGE_BYTES, Message, decode
from dumpstream.system.scratch import ScratchDirectory, name_length

#: Bytes that `sun_path` holds, without the NUL.
LONGEST_SOCKET_PATH = 107

_KIND = "socket"
_CREDENTIALS = struct.Struct("=iII")
_BACKLOG = 512
#: Bytes that are read at once, a short packet counted as so many: one peer must not keep the event loop from
#: the others.
_BYTES_AT_ONCE, _SHORT_PACKET = 16 << 10, 256


class Connection:
    """A connected agent; whatever it sends, it can only end its own connection.

    *on_message* is called on the event loop. Descriptors that the agent sends are not taken.
    """

    def __init__(
        self,
        peer: socket.socket,
        on_message: Callable[[Connection, Message], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self.pid, self.uid, _ = credentials(peer)
        self._peer: socket.socket | None = peer
        self._on_message, self._on_close = on_message, on_close
        peer.setblocking(False)
        asyncio.get_running_loop().add_reader(peer.fileno(), self.read)

    @property
    def open(self) -> bool:
        """Whether neither side has closed it."""
        return self._peer is not None

    def send(self, packet: bytes, descriptor: int | None = None) -> bool:
        """Send *packet* with *descriptor*; return whether the peer took it."""
        if self._peer is None:
            return False
        descriptors = [] if descriptor is None else [descriptor]
        try:
            socket.send_fds(self._peer, [packet], descriptors, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def read(self) -> bool:
        """Read what has come; a packet that is not a message ends the connection.

        Returns whether there may be more: one call reads only so much.
        """
        room = _BYTES_AT_ONCE
        while room > 0:
            if self._peer is None:
                return False
            try:
                packet = self._peer.recv(MAX_MESSAGE_BYTES + 1)
                message = decode(packet)
            except BlockingIOError:
                return False
            except (OSError, ValueError):  # also for the empty packet that says that the peer has closed it
                self.close()
                return False
            room -= max(len(packet), _SHORT_PACKET)
            self._on_message(self, message)
        return True

    def close(self) -> None:
        """Hang up; a second call does nothing."""
        if self._peer is not None:
            peer, self._peer = self._peer, None
            asyncio.get_running_loop().remove_reader(peer.fileno())
            peer.close()
            self._on_close(self)


def credentials(peer: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid and gid of the process that connected, from the kernel."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)


def is_allowed(uid: int) -> bool:
    """Whether a process of user *uid* may join: the collector's own user and root may."""
    return uid in (os.geteuid(), 0)


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at *path*, for this user alone; make its directory if it is missing.

    Blocks. A socket that a dead collector left is replaced.

    Raises:
        CollectorError: it cannot be made there.
    """
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise CollectorError(
            f"the socket's path {path} has more than {LONGEST_SOCKET_PATH} bytes; choose a shorter one"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        os.close(make_directory(path.parent))
        _remove_stale(path)
        os.fchmod(listener.fileno(), 0o600)  # Linux gives the file the mode that its socket has
        listener.bind(os.fsencode(path))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        raise CollectorError(
            f"no socket can be made at {path}: {exc.strerror}; choose another --socket"
        ) from exc
    except BaseException:
        listener.close()
        raise
    return listener


def make_private_directory() -> ScratchDirectory:
    """Return a new private directory whose path is short enough for a socket.

    Raises:
        CollectorError: no directory is writable and has a short path.
    """
    longest = LONGEST_SOCKET_PATH - name_length(_KIND) - len("//socket")
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), gettempdir(), "/tmp"):  # noqa: S108 - it is private
        if parent and os.access(parent, os.W_OK) and len(os.fsencode(parent)) <= longest:
            return ScratchDirectory(_KIND, Path(parent))
    raise CollectorError("no directory for a socket was found; set XDG_RUNTIME_DIR to one with a short path")


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CollectorError(f"{path} exists and is not a socket; choose another --socket")
    except FileNotFoundError:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(os.fsencode(path))
        except ConnectionRefusedError:
            return path.unlink(missing_ok=True)
    raise CollectorError(f"another collector listens at {path}; choose another --socket")
