"""Stores like Huawei OBS on loopback: the S3 server behind host names, and with less than S3 has."""

from __future__ import annotations

import re

from s3server import BUCKET, DOMAIN

from .google import sign
from .relay import Answer, Relay, Request

_UNPROMISED = re.compile("if-(none-)?match|x-amz-(sdk-)?checksum|x-amz-trailer")
_UNKNOWN = b"<Error><Code>NotImplemented</Code><Message>If-None-Match</Message></Error>"


class ObsServer(Relay):
    """Knows no conditional writes, and notes what OBS does not promise to know.

    It is an HTTP proxy for its clients, because nothing here resolves the names of hosts.

    Attributes:
        hosts: those that requests were for.
        unpromised: the headers of requests that OBS may ignore or refuse.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.hosts: set[str] = set()
        self.unpromised: set[str] = set()

    @property
    def options(self) -> str:
        """What follows a URL."""
        return f"?endpoint=http://{DOMAIN}:{self.target}"

    @property
    def host(self) -> str:
        """Where the bucket is."""
        return f"{BUCKET}.{DOMAIN}:{self.target}"

    def on_request(self, request: Request) -> Answer | None:
        self.hosts.add(request.headers["host"])
        self.unpromised |= {name for name in request.headers if _UNPROMISED.match(name)}
        return Answer(501, _UNKNOWN) if "if-none-match" in request.headers else None


class OldServer(Relay):
    """Knows S3's older way to list alone: it does not say how a list goes on.

    Attributes:
        deaf: it does not even begin a list where it is told to.
    """

    deaf = False

    def on_request(self, request: Request) -> Answer | None:
        if self.deaf:
            request.query = re.sub("&start-after=[^&]*", "", request.query)
        request.headers["host"] = f"127.0.0.1:{self.target}"
        sign(request)
        return None

    def on_answer(self, request: Request, answer: Answer) -> None:
        answer.body = re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", answer.body)
