"""Server: the page and its data over HTTP, for those who have the token."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.util import find_spec

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.view.watch import Watch

#: The files of the page, by their types; nothing else is served.
PAGE = {
    "index.html": "text/html",
    "style.css": "text/css",
    **dict.fromkeys(
        (
            *("charts.js", "colours.js", "data.js", "grid.js"),
            *("main.js", "map.js", "measures.js", "panel.js"),
        ),
        "text/javascript",
    ),
}
#: What a browser must keep to, whatever a capture has in its names.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_KEEP_ALIVE_S = 15.0


def require_server() -> None:
    """Check that a page can be served.

    Raises:
        DumpstreamError: it cannot; the message names the extra that is missing.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise DumpstreamError("a page needs starlette and uvicorn; pip install 'dumpstream[view]'")


def page_text(name: str) -> str:
    """Return the file *name* of the page."""
    return files("dumpstream.view").joinpath("page", name).read_text("utf-8")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; any free port if *port* is 0.

    Raises:
        DumpstreamError: the port is taken, or the host is not one of this machine's.
    """
    try:
        return socket.create_server((host, port), family=_family(host))
    except OSError as exc:
        remedy = "choose another --port, or leave it out" if port else "choose another --host"
        raise DumpstreamError(f"{host}:{port} cannot be listened on ({exc.strerror}); {remedy}") from exc


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def serve(watch: Watch, listener: socket.socket, token: str) -> None:
    """Serve the page until the process is told to end."""
    import uvicorn  # noqa: PLC0415 - optional

    config = uvicorn.Config(
        make_app(watch, token), log_level="error", access_log=False, lifespan="on", timeout_graceful_shutdown=1
    )
    await uvicorn.Server(config).serve([listener])


def make_app(watch: Watch, token: str) -> Callable[..., Awaitable[None]]:
    """Return the ASGI application."""
    from starlette.applications import Starlette  # noqa: PLC0415 - optional
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import (  # noqa: PLC0415
        JSONResponse,
        PlainTextResponse,
        RedirectResponse,
        Response,
        StreamingResponse,
    )
    from starlette.routing import Route  # noqa: PLC0415

    cookie = f"dumpstream-{secrets.token_hex(4)}"  # browsers do not tell the ports of a host apart

    def guarded(
        answer: Callable[[Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarding(request: Request) -> Response:
            if not secrets.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
                problem = "open the address that dumpstream view has printed, with its token"
                response: Response = PlainTextResponse(problem, 403)
            else:
                response = await answer(request)
            response.headers.update(_HEADERS)
            return response

        return guarding

    async def page(request: Request) -> Response:
        given = request.query_params.get("token")
        if given is not None and secrets.compare_digest(given.encode(), token.encode()):
            response: Response = RedirectResponse("./", 303, _HEADERS)
            response.set_cookie(cookie, token, httponly=True, samesite="strict")
            return response
        return await guarded(file)(request)

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in PAGE:
            return PlainTextResponse("there is no such file", 404)
        return Response(page_text(name), media_type=PAGE[name])

    async def run(_: Request) -> Response:
        return Response(await watch.packed(), media_type="application/octet-stream")

    async def tensor(request: Request) -> Response:
        try:
            return JSONResponse(await run_sync(watch.scene.tensor, request.path_params["row"]))
        except LookupError as exc:
            return PlainTextResponse(str(exc), 404)

    async def content(request: Request) -> Response:
        scene, row = watch.scene, request.path_params["row"]
        try:
            await run_sync(scene.tensor, row)
            return JSONResponse(await run_sync(scene.content, row))
        except LookupError as exc:
            return PlainTextResponse(str(exc), 404)
        except DumpstreamError as exc:
            return PlainTextResponse(str(exc), 409)

    async def events(_: Request) -> Response:
        return StreamingResponse(_events(watch), media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.follow)
            yield
            tasks.cancel_scope.cancel()

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/run", guarded(run)),
            Route("/api/tensor/{row:int}", guarded(tensor)),
            Route("/api/content/{row:int}", guarded(content)),
            Route("/api/events", guarded(events)),
            Route("/{name}", guarded(file)),
        ],
        lifespan=lifespan,
    )


async def _events(watch: Watch) -> AsyncIterator[str]:
    """Yield the status now, and whenever it changes; and a sign of life in between."""
    yield f"data: {json.dumps(watch.told)}\n\n"
    while True:
        status = None
        with anyio.move_on_after(_KEEP_ALIVE_S):
            status = await watch.changed()
        yield ": still here\n\n" if status is None else f"data: {json.dumps(status)}\n\n"
