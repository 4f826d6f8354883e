"""Server: where the page of a run listens."""

from __future__ import annotations

import socket
from importlib.util import find_spec

from dumpstream._errors import DumpstreamError
from dumpstream.view.watch import Watch


def require_server() -> None:
    """Check that a page can be served.

    Raises:
        DumpstreamError: it cannot; the message names the extra that is missing.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise DumpstreamError("a page needs starlette and uvicorn; pip install 'dumpstream[view]'")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; at any free port if *port* is 0.

    Raises:
        DumpstreamError: the port is taken, or the host is not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as exc:
        remedy = "choose another --port, or leave it out" if port else "choose another --host"
        reason = getattr(exc, "strerror", None) or exc
        raise DumpstreamError(f"cannot listen on {host}, port {port} ({reason}); {remedy}") from exc


async def serve(watch: Watch, listener: socket.socket, token: str, ticket: str | None = None) -> None:
    """Serve the page of *watch* to those who have the *token*, until the process is told to end.

    The *ticket* stands for the token once.
    """
    import uvicorn  # noqa: PLC0415 - optional

    from dumpstream.view.app import make_app  # noqa: PLC0415 - needs starlette, which is optional

    config = uvicorn.Config(
        make_app(watch, token, ticket),
        log_level="critical",  # pages that still listen are cut off at the end, which is no error
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve([listener])
