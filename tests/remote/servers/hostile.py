"""HostileServer: an S3 server on loopback that answers as no honest server would."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
_ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>0</ETag><Size>{size}</Size></Contents>"
)


class Answer(NamedTuple):
    """What the server sends for a range of an object."""

    total: int  #: how large it says that the object is
    body: Iterable[bytes]
    length: int  #: of the body, as its header says


class HostileServer:
    """Serves *objects* of one bucket by their keys.

    Attributes:
        answer: given key, start and end, says what to send; None for the bytes that are there.
        more: the listing, when it is at its end, says that it goes on from here again.
        asked: how many requests came for each key; those for a listing have the key "".
    """

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.answer: Callable[[str, int, int], Answer | None] = lambda *_: None
        self.more: str | None = None
        self.asked: dict[str, int] = {}

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve while the block runs; yields the endpoint."""
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hostile.serve(self)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        split = urlsplit(request.path)
        key = unquote(split.path).lstrip("/").partition("/")[2]
        self.asked[key] = self.asked.get(key, 0) + 1
        if not key:
            return self._list(request, parse_qs(split.query))
        if key not in self.objects:
            text = b"<Error><Code>NoSuchKey</Code></Error>"
            return _send(request, 404, Answer(0, [text], len(text)))
        data = self.objects[key]
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        start, end = (int(match[1]), min(int(match[2]) + 1, len(data))) if match else (0, len(data))
        answer = self.answer(key, start, end) or Answer(len(data), [data[start:end]], end - start)
        if match is None:
            return _send(request, 200, answer)
        last = start + min(answer.length, end - start) - 1
        return _send(request, 206, answer, f"bytes {start}-{last}/{answer.total}")

    def _list(self, request: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> None:
        (prefix,) = query.get("prefix", [""])
        entries = [
            _ENTRY.format(key=key, size=len(data))
            for key, data in self.objects.items()
            if key.startswith(prefix)
        ]
        more = f"<NextContinuationToken>{self.more}</NextContinuationToken>" if self.more else ""
        truncated = f"<IsTruncated>{str(bool(self.more)).lower()}</IsTruncated>"
        text = f"<ListBucketResult>{truncated}{more}{''.join(entries)}</ListBucketResult>".encode()
        _send(request, 200, Answer(0, [text], len(text)))


def _send(request: BaseHTTPRequestHandler, status: int, answer: Answer, content_range: str = "") -> None:
    request.send_response(status)
    request.send_header("Last-Modified", _DATE)
    request.send_header("ETag", '"0"')
    request.send_header("Content-Length", str(answer.length))
    if content_range:
        request.send_header("Content-Range", content_range)
    request.end_headers()
    try:
        for piece in answer.body:
            request.wfile.write(piece)
    except OSError:  # the client has had enough
        request.close_connection = True
