"""The routes of the page: its files, the feed, the login and the actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from efo.third_party_errors import reason_of
from efo_service.web.files import page_files, respond
from efo_service.web.live.actions import Action, ActionRefusedError, Perform, perform_logged
from efo_service.web.live.feed import Feed, TakeSnapshot
from efo_service.web.push import Push
from efo_service.web.security.access import SESSION_SECONDS
from efo_service.web.security.bodies import read_body
from efo_service.web.security.guard import COOKIE, SWITCH_ON, Guard, refuse_unless_allowed, uses_https

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
