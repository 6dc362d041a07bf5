"""The files and the routes of the page: the feed, the login and the actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec
import structlog
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from efo.third_party_errors import reason_of
from efo_service.web.live.actions import Action, ActionRefusedError, Perform, perform_logged
from efo_service.web.live.feed import Feed, TakeSnapshot, Update
from efo_service.web.security.access import SESSION_SECONDS
from efo_service.web.security.guard import COOKIE, SWITCH_ON, Guard, read_body, refuse_unless_allowed, uses_https

T = TypeVar("T")
SetLevel = Callable[[Literal["debug", "info", "warning", "error"]], Awaitable[None]]
"""Changes the level of the log."""


class LogLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to log from another level on."""

    level: Literal["debug", "info", "warning", "error"]


class Page(NamedTuple):
    """What the page needs of a service. `take`: takes a snapshot. `perform`: performs an action.

    `set_level`: changes the level of the log, for `efo log-level`; None: it cannot be changed.
    """

    take: TakeSnapshot
    perform: Perform
    set_level: SetLevel | None = None


def page_routes(page: Page, guard: Guard) -> Sequence[BaseRoute]:
    """Return the routes."""
    handlers = _Handlers(page, guard)
    return [
        Route("/", handlers.index),
        Route("/page/{name}", handlers.file),
        Route("/map", handlers.snapshot),
        Route("/events", Push(handlers.feed, guard)),
        Route("/login", handlers.show_login),
        Route("/login", handlers.log_in, methods=["POST"]),
        Route("/logout", handlers.log_out, methods=["POST"]),
        Route("/session", handlers.session),
        Route("/actions", handlers.act, methods=["POST"]),
        Route("/log-level", handlers.change_level, methods=["POST"]),
    ]


class _Handlers:
    """Responds to the requests of one service's page."""

    def __init__(self, page: Page, guard: Guard) -> None:
        self.feed = Feed(page.take)
        self._perform = page.perform
        self._set_level = page.set_level
        self._guard = guard
        self._files = page_files()

    async def index(self, request: Request) -> Response:
        decision = self._guard.may_read(request)
        if decision == "token_needed":
            return RedirectResponse("/login", 303)
        refuse_unless_allowed(decision)
        return respond(request, self._files["index.html"])

    async def file(self, request: Request) -> Response:
        """Anybody may load scripts and styles: they are as public as efo is, and the login needs the style."""
        name = request.path_params["name"]
        if name not in self._files or name.endswith(".html"):
            raise HTTPException(404, "no such file")
        return respond(request, self._files[name])

    async def snapshot(self, request: Request) -> Response:
        self._guard.require_read(request)
        return Response((await self.feed.after(0)).json, media_type="application/json")

    async def show_login(self, request: Request) -> Response:
        return respond(request, self._files["wrong_token.html" if "wrong" in request.query_params else "login.html"])

    async def log_in(self, request: Request) -> Response:
        fields = parse_qs((await read_body(request)).decode(errors="replace"))
        cookie = self._guard.log_in(request, fields.get("token", [""])[0].strip())
        if cookie is None:
            return RedirectResponse("/login?wrong=1", 303)
        response = RedirectResponse("/", 303)
        secure = uses_https(request)
        response.set_cookie(COOKIE, cookie, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
        return response

    async def log_out(self, request: Request) -> Response:
        self._guard.require_action(request)
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def session(self, request: Request) -> Response:
        """Tell the page whether it may act, and if not, what to do about it."""
        self._guard.require_read(request)
        match self._guard.may_act(request):
            case "allowed":
                return JSONResponse({"actions": "on", "reason": ""})
            case "read_only":
                return JSONResponse({"actions": "login", "reason": "log in with the token that may act on shards"})
            case "token_needed":
                return JSONResponse({"actions": "login", "reason": "log in with the token to act on shards"})
            case _:
                return JSONResponse({"actions": "off", "reason": f"actions are switched off: {SWITCH_ON}"})

    async def change_level(self, request: Request) -> Response:
        self._guard.require_action(request)
        if self._set_level is None:
            raise HTTPException(404, "the level of this log cannot be changed")
        asked = await _decoded(request, LogLevel)
        address = None if request.client is None else request.client.host
        log = structlog.get_logger()
        log.warning("log_level_asked", level_asked=asked.level, address=address, by=self._guard.who(request))
        await self._set_level(asked.level)
        return JSONResponse({"done": True, "reason": ""})

    async def act(self, request: Request) -> Response:
        self._guard.require_action(request)
        action = await _decoded(request, Action)
        try:
            address = None if request.client is None else request.client.host
            await perform_logged(self._perform, action, address, self._guard.who(request))
        except ActionRefusedError as error:
            return JSONResponse({"done": False, "reason": str(error)}, status_code=409)
        return JSONResponse({"done": True, "reason": ""})


async def _decoded(request: Request, kind: type[T]) -> T:
    """Return the body of a request, which is JSON. Raises HTTPException."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "an action is JSON: send content-type: application/json")
    try:
        return msgspec.json.decode(await read_body(request), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"not an action: {reason_of(error)}") from None


_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    """A file. `etag`: of its content."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by name."""
    found = {}
    for file in files("efo_service.web").joinpath("page").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            content = file.read_bytes()
            found[file.name] = PageFile(content, _TYPES[kind], f'"{sha256(content).hexdigest()[:32]}"')
    return found


def respond(request: Request, file: PageFile) -> Response:
    """Return the file, or 304 if the browser has it. Browsers ask each time, so a new release is seen at once."""
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


SEND_SECONDS: Final = 10.0
"""A viewer that takes longer for one message is dropped. Its browser connects again."""
MAX_SECONDS: Final = 3600.0
"""A connection ends after this time, so that the page is asked again whether it may read."""


class Push:
    """An ASGI app: responds to one request with events until the viewer leaves."""

    def __init__(self, feed: Feed, guard: Guard) -> None:
        self._feed = feed
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises HTTPException if it may not read."""
        request = Request(scope)
        self._guard.require_read(request)
        if request.method != "GET":
            raise HTTPException(405, headers={"allow": "GET"})
        with self._feed.viewer(None if request.client is None else request.client.host) as has_room:
            if not has_room:
                body = b"too many viewers: close other pages of this service"
                headers = [(b"content-type", b"text/plain"), (b"retry-after", b"30")]
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send({"type": "http.response.body", "body": body})
                return
            headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
                with trio.move_on_after(MAX_SECONDS):
                    await self._send_updates(send)
                nursery.cancel_scope.cancel()

    async def _send_updates(self, send: Send) -> None:
        seen = 0
        while True:
            update = await self._feed.after(seen)
            seen = update.version
            with trio.move_on_after(SEND_SECONDS) as sending:
                await send({"type": "http.response.body", "body": encode(update), "more_body": True})
            if sending.cancelled_caught:
                return


def encode(update: Update) -> bytes:
    """Return an update as a server-sent event. JSON has no line breaks."""
    name = b"snapshot" if update.is_whole else b"changes"
    return b"event: %s\ndata: %s\n\n" % (name, update.json)


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
