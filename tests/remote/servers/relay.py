"""Relay: passes HTTP requests on to a server on loopback, with changes to them and to the answers."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

#: What belongs to one connection.
_OF_A_CONNECTION = {"connection", "content-length", "keep-alive", "transfer-encoding"}
_TIMEOUT_S = 30


@dataclass
class Request:
    """A request as it came; the names of its headers are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Relay:
    """Stands in front of the server at *target*."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0

    def on_request(self, request: Request) -> Answer | None:
        """Change *request*, or answer it instead of the server."""

    def on_answer(self, request: Request, answer: Answer) -> None:
        """Change *answer*."""

    @contextmanager
    def running(self) -> Iterator[Self]:
        relay = self

        class Handler(_Handler):
            def answer(self, request: Request) -> Answer:
                return relay._answer(request)

        with _Server(("127.0.0.1", 0), Handler) as server:
            self.port = server.server_port
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def _answer(self, request: Request) -> Answer:
        answer = self.on_request(request)
        if answer is None:
            answer = self._ask(request)
            self.on_answer(request, answer)
        return answer

    def _ask(self, request: Request) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.target, timeout=_TIMEOUT_S)
        try:
            target = f"{request.path}?{request.query}" if request.query else request.path
            connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(request.body)
            found = connection.getresponse()
            return Answer(found.status, found.read(), dict(found.getheaders()))
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # captures have many requests on their way


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S

    def answer(self, request: Request) -> Answer:
        raise NotImplementedError

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        answer = self.answer(Request(self.command, url.path, url.query, headers, body))
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _OF_A_CONNECTION:
                self.send_header(name, value)
        # Of an object that was only asked about, the size is not the one of the answer.
        sizes = {name.lower(): value for name, value in answer.headers.items()}
        size = sizes.get("content-length") if self.command == "HEAD" else None
        self.send_header("Content-Length", size or str(len(answer.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the base class looks for them

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the base class
        """Say nothing."""
