"""Lets requests through, or refuses them: the decisions of `access`, limits of bodies, and the headers of responses."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import aclosing
from time import time
from typing import Final

import structlog
import trio
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from efo_service.web.security.access import Access, Caller, Decision, FailedAttempts

COOKIE: Final = "efo_session"
CERTIFICATE: Final = "efo.client_certificate"
"""In the scope of a request: whether TLS verified a certificate of the client."""
SWITCH_ON: Final = "set EFO_SERVICE__TOKEN in the environment of the service to a random text of 16 characters or more"
_CLOSED: Final = (
    "closed: this service has no token, so only requests of its own machine are answered, to localhost and through no "
    f"proxy: {SWITCH_ON}, or use [service] client_ca_file"
)


class Guard:
    """Decides for the requests of one service. `wall_clock`: seconds since the epoch."""

    def __init__(self, access: Access | None = None, *, wall_clock: Callable[[], float] = time) -> None:
        self.access = access or Access()
        self._wall_clock = wall_clock
        self._attempts = FailedAttempts()

    def may_read(self, request: Request) -> Decision:
        """Return whether the request may read. Raises HTTPException 429 after too many wrong tokens."""
        return self._counted(request, self.access.may_read(_caller(request), self._wall_clock()))

    def require_read(self, request: Request) -> None:
        """Refuse with an HTTPException, unless the request may read."""
        refuse_unless_allowed(self.may_read(request))

    def require_action(self, request: Request) -> None:
        """Refuse with an HTTPException, unless the request may act."""
        refuse_unless_allowed(self._counted(request, self.access.may_act(_caller(request), self._wall_clock())))

    def may_act(self, request: Request) -> Decision:
        """Return whether the request may act. Raises HTTPException 429 after too many wrong tokens."""
        return self._counted(request, self.access.may_act(_caller(request), self._wall_clock()))

    def log_in(self, request: Request, token: str) -> str | None:
        """Return the cookie of a new session; None if this is not the token. Raises HTTPException 403 and 429."""
        caller = _caller(request)
        if not caller.is_same_site:
            refuse_unless_allowed("foreign_site")
        self._refuse_too_many(caller.address)
        if (found := self.access.find(token)) is None:
            self._failed(caller.address)
            return None
        structlog.get_logger().info("logged_in", address=caller.address, by=found.name)
        return self.access.session(found, self._wall_clock())

    def who(self, request: Request) -> str:
        """Return the name of the token that a request was allowed by, for the log."""
        token = self.access.holder(_caller(request), self._wall_clock())
        return "" if token is None else token.name

    def _counted(self, request: Request, decision: Decision) -> Decision:
        """Count a wrong token. While there were too many, the right one is refused too, or guessing would go on.

        Other credentials are no attempt: they are those of a proxy, which lets the browser send them each time.
        """
        caller = _caller(request)
        kind, _, token = caller.headers.get("authorization", "").partition(" ")
        if self.access.has_token and kind.lower() == "bearer":
            self._refuse_too_many(caller.address)
            if self.access.find(token.strip()) is None:
                self._failed(caller.address)
                return "token_needed"
        return decision

    def _refuse_too_many(self, address: str | None) -> None:
        seconds = self._attempts.retry_after(address, trio.current_time())
        if seconds is not None:
            wait = str(math.ceil(seconds))
            raise HTTPException(429, "too many wrong tokens", headers={"retry-after": wait})

    def _failed(self, address: str | None) -> None:
        self._attempts.failed(address, trio.current_time())
        structlog.get_logger().warning("wrong_token", address=address)


def uses_https(request: Request) -> bool:
    """Return whether the sender uses HTTPS, with this service or with a proxy before it."""
    return _caller(request).uses_https


def refuse_unless_allowed(decision: Decision) -> None:
    """Raise the HTTPException of a decision, unless it allows."""
    match decision:
        case "allowed":
            return
        case "token_needed":
            raise HTTPException(401, "the token of this service is needed", headers={"www-authenticate": "Bearer"})
        case "read_only":
            raise HTTPException(403, "this token may only read: actions need the token of [service] token")
        case "closed":
            raise HTTPException(403, _CLOSED)
        case "foreign_site":
            raise HTTPException(403, "the request was sent by a page of another site")


def _caller(request: Request) -> Caller:
    return Caller(
        None if request.client is None else request.client.host,
        {name.lower(): value for name, value in request.headers.items()},
        request.cookies.get(COOKIE),
        request.url.scheme,
        bool(request.scope.get(CERTIFICATE)),
        request.scope.get("http_version", "1.1"),
    )


MAX_BYTES: Final = 4096
MAX_SECONDS: Final = 5.0


async def read_body(request: Request) -> bytes:
    """Return the body. Raises HTTPException: 413 if it is too large, 408 if it takes too long."""
    body = b""
    with trio.move_on_after(MAX_SECONDS) as scope:
        try:
            async with aclosing(request.stream()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise HTTPException(413, f"the body of a request has {MAX_BYTES} bytes at most")
        except ClientDisconnect:
            raise HTTPException(400, "the request has ended before its body") from None
    if scope.cancelled_caught:
        raise HTTPException(408, f"the body of the request did not arrive within {MAX_SECONDS:g} s")
    return body


CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send the login and the actions with Origin: null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Wraps an ASGI app. Responses are not stored by caches unless they say so themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)
