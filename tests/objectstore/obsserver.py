"""A store like Huawei OBS on loopback: the S3 server behind host names, and without conditional writes."""

from __future__ import annotations

from s3server import BUCKET, DOMAIN

from .relay import Answer, Relay, Request

_UNKNOWN = b"<Error><Code>NotImplemented</Code><Message>If-None-Match</Message></Error>"


class ObsServer(Relay):
    """Is an HTTP proxy for its clients, because nothing here resolves the names of hosts.

    Attributes:
        hosts: those that requests were for.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.hosts: set[str] = set()

    @property
    def options(self) -> str:
        """What follows a URL."""
        return f"?endpoint=http://{DOMAIN}:{self.target}&addressing=virtual"

    @property
    def host(self) -> str:
        """Where the bucket is."""
        return f"{BUCKET}.{DOMAIN}:{self.target}"

    def on_request(self, request: Request) -> Answer | None:
        self.hosts.add(request.headers["host"])
        return Answer(501, _UNKNOWN) if "if-none-match" in request.headers else None
