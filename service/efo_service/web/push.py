"""Pushes the feed to one viewer as server-sent events."""

from __future__ import annotations

from typing import Final

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from efo_service.web.live.feed import Feed, Update
from efo_service.web.security.guard import Guard

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
