"""App: the page and its data over HTTP, for those who have the token.

Needs starlette, which is optional: import this module where it is used.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dumpstream._errors import DumpstreamError
from dumpstream.view.page import PAGE, page_text
from dumpstream.view.watch import Watch

#: What a browser must keep to, whatever a capture has in its names.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_KEEP_ALIVE_S = 15.0
_REFUSAL = "open the address that dumpstream view has printed, with its token"


class _GrownError(Exception):
    """Another version of the run is asked for than that which is there now."""


def make_app(watch: Watch, token: str, ticket: str | None = None) -> Starlette:
    """Return the application that serves *watch* to those who have the *token*.

    The *ticket* stands for the token once.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.follow)
            tasks.start_soon(watch.work)
            yield
            tasks.cancel_scope.cancel()

    return Starlette(routes=_Routes(watch, token, ticket).all(), lifespan=lifespan)


class _Routes:
    def __init__(self, watch: Watch, token: str, ticket: str | None) -> None:
        self._watch, self._token, self._ticket = watch, token, ticket
        # Browsers do not tell the ports of a host apart, so two pages need different names.
        self._cookie = f"dumpstream-{secrets.token_hex(4)}"

    def all(self) -> list[Route]:
        """Return all routes."""
        guarded: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/api/run": self._run,
            "/api/tensor/{row:int}": self._tensor,
            "/api/content/{row:int}": self._content,
            "/api/against": self._against,
            "/api/events": self._events,
            "/{name}": self._file,
        }
        return [
            Route("/", self._page),
            Route("/api/statistics", self._guarded(self._ask), methods=["POST"]),
            *(Route(path, self._guarded(it)) for path, it in guarded.items()),
        ]

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Any:
        async def guarding(request: Request) -> Response:
            if self._is_token(request.cookies.get(self._cookie)):
                response = await self._tried(answer, request)
            else:
                response = _text(_REFUSAL, 403)
            response.headers.update(_HEADERS)
            return response

        return guarding

    @staticmethod
    async def _tried(answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        try:
            return await answer(request)
        except _GrownError:
            return Response(status_code=204)
        except LookupError as exc:
            return _text(str(exc), 404)
        except (DumpstreamError, OSError) as exc:
            return _text(str(exc), 409)

    def _is_token(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self._token.encode())

    def _takes(self, ticket: str | None) -> bool:
        """Whether it is the ticket, which is worth nothing from then on."""
        if ticket is None or self._ticket is None:
            return False
        if not secrets.compare_digest(ticket.encode(), self._ticket.encode()):
            return False
        self._ticket = None
        return True

    async def _page(self, request: Request) -> Response:
        given = request.query_params.get("token")
        if not self._is_token(given) and not self._takes(given):
            page: Response = await self._guarded(self._file)(request)
            return page
        # The token leaves the address, so that it is not in links that are passed on.
        response = RedirectResponse("./", 303, _HEADERS)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in PAGE:
            raise LookupError("there is no such file")
        return Response(await run_sync(page_text, name), media_type=PAGE[name])

    async def _run(self, _: Request) -> Response:
        return _bytes(self._watch.packed)

    async def _against(self, _: Request) -> Response:
        return _bytes(await run_sync(lambda: self._watch.packed_against))

    async def _ask(self, _: Request) -> Response:
        self._watch.asked.set()
        return Response(status_code=204)

    def _row(self, request: Request) -> int:
        """Return the row that is asked for.

        Raises:
            _GrownError: the page has its number from an earlier version of the run.
        """
        if request.query_params.get("version", self._watch.version) != self._watch.version:
            raise _GrownError
        row: int = request.path_params["row"]
        return row

    async def _tensor(self, request: Request) -> Response:
        row = self._row(request)
        details = await self._watch.details()
        tensor = await run_sync(details.tensor, row)
        return _json({**tensor, "against": self._watch.against_of(row)})

    async def _content(self, request: Request) -> Response:
        row = self._row(request)
        details = await self._watch.details()
        return _json(await run_sync(details.content, row))

    async def _events(self, _: Request) -> Response:
        self._watch.shown.set()  # pages listen when they have drawn the run
        return StreamingResponse(_statuses(self._watch), media_type="text/event-stream")


async def _statuses(watch: Watch) -> AsyncIterator[str]:
    """Yield the status now, and whenever it changes; and a sign of life in between."""
    seen = watch.told
    yield _event(seen)
    while True:
        status = None
        with anyio.move_on_after(_KEEP_ALIVE_S):
            status = await watch.changed(seen)
        if status is not None:
            seen = status
        yield ": still here\n\n" if status is None else _event(seen)


def _bytes(packed: bytes) -> Response:
    """Return what was packed, or that there is nothing yet."""
    return Response(packed, 200 if packed else 204, media_type="application/octet-stream")


def _text(words: str, status: int) -> Response:
    """Return *words*, in which names may have bytes that are not UTF-8."""
    return Response(words.encode("utf-8", "backslashreplace"), status, media_type="text/plain")


def _json(value: dict[str, Any]) -> Response:
    """Return *value* as JSON without a character that could not be encoded."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


def _event(status: dict[str, Any]) -> str:
    return f"data: {json.dumps(status)}\n\n"
