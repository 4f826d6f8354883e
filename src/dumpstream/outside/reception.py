"""Reception: accepts agents. Only a peer that has introduced itself is heard."""

import asyncio
import socket
from collections.abc import Callable

from dumpstream.outside.connection import Connection, is_allowed
from dumpstream.outside.wire import Message, encode

#: Peers that have not introduced themselves; if one more comes, the oldest is disconnected.
_MAX_STRANGERS = 256
#: The same for the peers of one process, so that one process does not disconnect those of another.
_MAX_STRANGERS_OF_ONE = 16
_INTRODUCTION_S = 10.0
_ACCEPTS_AT_ONCE = 64
#: Pause before the next accept, when this process has no descriptor left.
_PAUSE_S = 0.1


class Reception:
    """Accepts peers at *listener*, which it closes.

    *on_message* gets the messages of each peer from its ``hello`` on; *on_close* gets every connection that
    has ended.
    """

    def __init__(
        self,
        listener: socket.socket,
        on_message: Callable[[Connection, Message], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._listener = listener
        self._on_message, self._on_close = on_message, on_close
        self._loop = asyncio.get_running_loop()
        self._strangers: dict[Connection, asyncio.TimerHandle] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    @property
    def empty(self) -> bool:
        """Whether all peers have introduced themselves."""
        return not self._strangers

    def let_in(self) -> None:
        """Accept the peers that are waiting."""
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                peer, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._loop.remove_reader(self._listener.fileno())
                self._pause = self._loop.call_later(_PAUSE_S, self._listen)
                return
            connection = Connection(peer, self._hear, self._forget)
            if not is_allowed(connection.uid):
                connection.send(encode("refused", [("reason", "the collector belongs to another user")]))
                connection.close()
                continue
            self._strangers[connection] = self._loop.call_later(_INTRODUCTION_S, connection.close)
            self._make_room(connection.pid)

    def close(self) -> None:
        """Accept no more peers, and disconnect those that have not introduced themselves."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for stranger in list(self._strangers):
            stranger.close()

    def _make_room(self, pid: int) -> None:
        """Disconnect the oldest stranger if there are too many of the process *pid*, or of all."""
        of_one = [stranger for stranger in self._strangers if stranger.pid == pid]
        if len(of_one) > _MAX_STRANGERS_OF_ONE:
            of_one[0].close()
        elif len(self._strangers) > _MAX_STRANGERS:
            next(iter(self._strangers)).close()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self.let_in)

    def _hear(self, connection: Connection, message: Message) -> None:
        if connection in self._strangers:
            if message.kind != "hello":
                return
            self._strangers.pop(connection).cancel()
        self._on_message(connection, message)

    def _forget(self, connection: Connection) -> None:
        if connection in self._strangers:
            self._strangers.pop(connection).cancel()
        self._on_close(connection)
